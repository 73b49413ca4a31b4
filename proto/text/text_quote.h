/* text_quote.h - a string in double quotes that JSON and YAML read the same way.
 *
 * Any thread; pure. Bytes that are not UTF-8 become U+FFFD; control characters, line separators and
 * what YAML forbids are written \uXXXX. */
#pragma once
#include "base/text.h"
#include <stdbool.h>

void text_quote(const char *bytes, size_t len, struct text *out);
/* True for text that YAML reads back as the same text without quotes. */
bool text_quote_is_plain(const char *text);
