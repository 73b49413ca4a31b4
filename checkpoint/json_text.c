/* json_text.c - writes JSON strings. See json_text.h. */
#include "checkpoint/json_text.h"

void json_text_string(struct text *out, const char *text, size_t len)
{
    size_t from = 0;

    text_add_bytes(out, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        text_add_bytes(out, text + from, i - from);
        if (c < 0x20)
            text_addf(out, "\\u%04x", c);
        else
            text_addf(out, "\\%c", c);
        from = i + 1;
    }
    text_add_bytes(out, text + from, len - from);
    text_add_bytes(out, "\"", 1);
}
