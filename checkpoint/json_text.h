/* json_text.h - writes JSON strings, always in the same way: canonical files are compared by
 * digest.
 *
 * Any thread; pure. The counterpart of json_scan.h. */
#pragma once
#include "base/text.h"

/* Quoted; '"', '\\' and control characters escaped (\u00xx), all else as it is: UTF-8. */
void json_text_string(struct text *out, const char *text, size_t len);
