#include "proto/text/text_quote.h"
#include <string.h>
#include <strings.h>

/* Decodes the character at bytes; returns its length, 0 when it is not UTF-8. */
static size_t decode(const char *bytes, size_t len, uint32_t *code)
{
    unsigned char c = (unsigned char)bytes[0];
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (c == 0) {
        *code = 0;
        return 1;
    }
    if (n > len || !text_is_utf8(bytes, n))
        return 0;
    *code = n == 1 ? c : c & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++)
        *code = *code << 6 | ((unsigned char)bytes[i] & 0x3fu);
    return n;
}

static bool needs_escape(uint32_t code)
{
    return code < 0x20 || code == '"' || code == '\\' || (code >= 0x7f && code <= 0x9f) ||
           code == 0x2028 || code == 0x2029 || code == 0xfeff || code == 0xfffe || code == 0xffff;
}

static void add_escape(uint32_t code, struct text *out)
{
    switch (code) {
    case '"':
        text_add(out, "\\\"");
        break;
    case '\\':
        text_add(out, "\\\\");
        break;
    case '\n':
        text_add(out, "\\n");
        break;
    case '\t':
        text_add(out, "\\t");
        break;
    case '\r':
        text_add(out, "\\r");
        break;
    default:
        text_addf(out, "\\u%04x", (unsigned)code);
    }
}

void text_quote(const char *bytes, size_t len, struct text *out)
{
    text_add(out, "\"");
    size_t start = 0, at = 0;
    while (at < len) {
        uint32_t code = 0;
        size_t n = decode(bytes + at, len - at, &code);
        if (n > 0 && !needs_escape(code)) {
            at += n;
            continue;
        }
        text_add_bytes(out, bytes + start, at - start);
        if (n == 0)
            text_add(out, "\xef\xbf\xbd");
        else
            add_escape(code, out);
        at += n ? n : 1;
        start = at;
    }
    text_add_bytes(out, bytes + start, len - start);
    text_add(out, "\"");
}

bool text_quote_is_plain(const char *text)
{
    static const char *const words[] = {"true", "false", "null", "yes", "no",  "on",
                                        "off",  "y",     "n",    "nan", "inf", "infinity"};
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/";
    static const char rest[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/0123456789.-+";
    if (!*text || !strchr(first, *text) || text[strspn(text, rest)] || strlen(text) > 200)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(text, words[i]) == 0)
            return false;
    return true;
}
