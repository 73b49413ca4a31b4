#include "proto/text/text_base64.h"
#include "base/mem.h"
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void text_base64_print(const void *bytes, size_t len, struct text *out)
{
    const uint8_t *in = bytes;
    for (size_t at = 0; at < len; at += 3) {
        size_t left = len - at;
        uint32_t group = (uint32_t)in[at] << 16;
        group |= left > 1 ? (uint32_t)in[at + 1] << 8 : 0;
        group |= left > 2 ? (uint32_t)in[at + 2] : 0;
        char four[4] = {alphabet[group >> 18], alphabet[group >> 12 & 63], '=', '='};
        if (left > 1)
            four[2] = alphabet[group >> 6 & 63];
        if (left > 2)
            four[3] = alphabet[group & 63];
        text_add_bytes(out, four, sizeof four);
    }
}

static int digit_of(char c)
{
    const char *place = c ? strchr(alphabet, c) : NULL;
    return place ? (int)(place - alphabet) : -1;
}

/* Four characters, `keep` bytes of which are data; the bits beyond must be zero. */
static bool parse_group(const char *four, size_t keep, uint8_t *out)
{
    uint32_t group = 0;
    for (size_t i = 0; i < 4; i++) {
        int digit = i <= keep ? digit_of(four[i]) : 0;
        if (digit < 0)
            return false;
        group = group << 6 | (uint32_t)digit;
    }
    for (size_t i = 0; i < keep; i++)
        out[i] = (uint8_t)(group >> (16 - 8 * i));
    return keep == 3 || (group & (keep == 2 ? 0xffu : 0xffffu)) == 0;
}

bool text_base64_parse(const char *text, size_t text_len, uint8_t **data, size_t *len)
{
    if (text_len % 4 != 0)
        return false;
    size_t pad = 0;
    while (pad < 2 && pad < text_len && text[text_len - 1 - pad] == '=')
        pad++;
    size_t size = text_len / 4 * 3 - pad;
    if (size == 0) {
        *data = NULL;
        *len = 0;
        return text_len == 0;
    }
    uint8_t *out = mem_alloc(size);
    for (size_t at = 0, to = 0; at < text_len; at += 4, to += 3)
        if (!parse_group(text + at, size - to < 3 ? size - to : 3, out + to)) {
            mem_free(out);
            return false;
        }
    *data = out;
    *len = size;
    return true;
}
