/* text_base64.h - bytes in text (RFC 4648, with padding). Any thread; pure. */
#pragma once
#include "base/text.h"

void text_base64_print(const void *bytes, size_t len, struct text *out);
/* Strict: canonical, padded, no white space. *data (NULL when empty) is freed with mem_free. */
bool text_base64_parse(const char *text, size_t text_len, uint8_t **data, size_t *len);
