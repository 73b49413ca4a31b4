/* json_scan.c - strict JSON, pulled piece by piece. See json_scan.h. */
#include "checkpoint/json_scan.h"
#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void json_scan_init(struct json_scan *scan, const void *bytes, size_t len, struct arena *arena)
{
    *scan = (struct json_scan){.begin = bytes, .at = bytes, .arena = arena};
    scan->end = scan->at + len;
    scan->fresh = true;
}

bool json_scan_fail(struct json_scan *scan, const char *fmt, ...)
{
    char what[200];
    va_list args;

    if (scan->failed)
        return false;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    scan->failed = true;
    (void)error_set(&scan->error, STATUS_INVALID, "byte %zu: %s", (size_t)(scan->at - scan->begin),
                    what);
    return false;
}

bool json_scan_is(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && memcmp(text, word, len) == 0;
}

unsigned char json_scan_peek(struct json_scan *scan)
{
    while (scan->at < scan->end &&
           (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r'))
        scan->at++;
    return scan->at < scan->end && !scan->failed ? *scan->at : 0;
}

static bool open_bracket(struct json_scan *scan, unsigned char bracket, const char *what)
{
    if (scan->failed)
        return false;
    if (json_scan_peek(scan) != bracket)
        return json_scan_fail(scan, "%s is expected here", what);
    if (++scan->depth > JSON_SCAN_DEPTH_MAX)
        return json_scan_fail(scan, "more than %d levels", JSON_SCAN_DEPTH_MAX);
    scan->at++;
    scan->fresh = true;
    return true;
}

bool json_scan_object(struct json_scan *scan)
{
    return open_bracket(scan, '{', "an object");
}

bool json_scan_array(struct json_scan *scan)
{
    return open_bracket(scan, '[', "an array");
}

/* Takes the comma that is due. False: the bracket closed, or a failure. */
static bool next_member(struct json_scan *scan, unsigned char bracket)
{
    unsigned char c = json_scan_peek(scan);

    if (scan->failed)
        return false;
    if (c == bracket) {
        scan->at++;
        scan->depth--;
        scan->fresh = false;
        return false;
    }
    if (!scan->fresh) {
        if (c != ',')
            return json_scan_fail(scan, "'%c' or a comma is expected here", bracket);
        scan->at++;
        if (json_scan_peek(scan) == bracket)
            return json_scan_fail(scan, "a comma before '%c'", bracket);
    }
    scan->fresh = false;
    return true;
}

bool json_scan_item(struct json_scan *scan)
{
    return next_member(scan, ']');
}

bool json_scan_key(struct json_scan *scan, const char **key, size_t *len)
{
    if (!next_member(scan, '}') || !json_scan_string(scan, key, len))
        return false;
    if (json_scan_peek(scan) != ':')
        return json_scan_fail(scan, "a colon is expected here");
    scan->at++;
    return true;
}

/* --- strings */

static bool hex4(struct json_scan *scan, uint32_t *out)
{
    uint32_t value = 0;

    if (scan->end - scan->at < 4)
        return json_scan_fail(scan, "an escape is cut off");
    for (int i = 0; i < 4; i++) {
        unsigned char c = *scan->at++;
        uint32_t digit = c >= '0' && c <= '9'   ? c - (uint32_t)'0'
                         : c >= 'a' && c <= 'f' ? c - (uint32_t)'a' + 10
                         : c >= 'A' && c <= 'F' ? c - (uint32_t)'A' + 10
                                                : 16;
        if (digit == 16)
            return json_scan_fail(scan, "\\u needs four hexadecimal digits");
        value = value << 4 | digit;
    }
    *out = value;
    return true;
}

static size_t utf8_put(uint32_t point, char *out)
{
    unsigned char *to = (unsigned char *)out;

    if (point < 0x80) {
        to[0] = (unsigned char)point;
        return 1;
    }
    size_t len = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = len - 1; i > 0; i--, point >>= 6)
        to[i] = (unsigned char)(0x80 | (point & 0x3F));
    to[0] = (unsigned char)(lead[len] | point);
    return len;
}

static bool unescape_unicode(struct json_scan *scan, char *out, size_t *len)
{
    uint32_t point = 0, low = 0;

    if (!hex4(scan, &point))
        return false;
    if (point >= 0xDC00 && point < 0xE000)
        return json_scan_fail(scan, "a lone surrogate");
    if (point >= 0xD800 && point < 0xDC00) {
        if (scan->end - scan->at < 2 || scan->at[0] != '\\' || scan->at[1] != 'u')
            return json_scan_fail(scan, "a lone surrogate");
        scan->at += 2;
        if (!hex4(scan, &low))
            return false;
        if (low < 0xDC00 || low >= 0xE000)
            return json_scan_fail(scan, "a lone surrogate");
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    *len += utf8_put(point, out + *len);
    return true;
}

/* scan->at is behind the backslash. An escape is never shorter than what it stands for. */
static bool unescape_one(struct json_scan *scan, char *out, size_t *len)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *found;

    if (scan->at == scan->end)
        return json_scan_fail(scan, "an escape is cut off");
    unsigned char c = *scan->at++;
    if (c == 'u')
        return unescape_unicode(scan, out, len);
    found = c ? strchr(names, c) : NULL;
    if (!found)
        return json_scan_fail(scan, "an unknown escape");
    out[(*len)++] = values[found - names];
    return true;
}

/* Moves to the closing quote. True: found, and the bytes are text. */
static bool string_measure(struct json_scan *scan, bool *escaped)
{
    const unsigned char *at = scan->at;
    unsigned char high = 0;

    *escaped = false;
    for (; at < scan->end && *at != '"'; at++) {
        if (*at < 0x20) {
            scan->at = at;
            return json_scan_fail(scan, "a raw control character in a string");
        }
        high |= *at;
        if (*at == '\\') {
            *escaped = true;
            if (++at == scan->end)
                break;
        }
    }
    if (at >= scan->end) {
        return json_scan_fail(scan, "a string without end");
    }
    if ((high & 0x80) && !text_is_utf8((const char *)scan->at, (size_t)(at - scan->at)))
        return json_scan_fail(scan, "a string that is not UTF-8");
    scan->at = at;
    return true;
}

static bool string_unescape(struct json_scan *scan, const unsigned char *from, const char **out,
                            size_t *out_len)
{
    const unsigned char *quote = scan->at;
    size_t len = 0;

    if (!scan->arena)
        return json_scan_fail(scan, "an escape, where none may be");
    char *text = arena_alloc(scan->arena, (size_t)(quote - from) + 1);
    scan->at = from;
    while (scan->at < quote) {
        if (*scan->at != '\\') {
            text[len++] = (char)*scan->at++;
            continue;
        }
        scan->at++;
        if (!unescape_one(scan, text, &len))
            return false;
    }
    *out = text;
    *out_len = len;
    return true;
}

bool json_scan_string(struct json_scan *scan, const char **out, size_t *len)
{
    bool escaped;

    if (scan->failed)
        return false;
    if (json_scan_peek(scan) != '"')
        return json_scan_fail(scan, "a string is expected here");
    const unsigned char *from = ++scan->at;
    if (!string_measure(scan, &escaped))
        return false;
    if (!escaped) {
        *out = (const char *)from;
        *len = (size_t)(scan->at - from);
    } else if (!string_unescape(scan, from, out, len)) {
        return false;
    }
    scan->at++;
    return true;
}

/* --- numbers and the rest */

bool json_scan_u64(struct json_scan *scan, uint64_t *out)
{
    uint64_t value = 0;

    if (scan->failed)
        return false;
    unsigned char c = json_scan_peek(scan);
    if (c < '0' || c > '9')
        return json_scan_fail(scan, "a whole number of 0 or more is expected here");
    const unsigned char *from = scan->at;
    for (; scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9'; scan->at++) {
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*scan->at - '0'), &value))
            return json_scan_fail(scan, "a number of more than 64 bits");
    }
    if (*from == '0' && scan->at - from > 1)
        return json_scan_fail(scan, "a number with a leading zero");
    if (scan->at < scan->end && (*scan->at == '.' || *scan->at == 'e' || *scan->at == 'E'))
        return json_scan_fail(scan, "a whole number is expected here");
    *out = value;
    return true;
}

static bool take_word(struct json_scan *scan, const char *word)
{
    size_t len = strlen(word);

    if (scan->failed || json_scan_peek(scan) != (unsigned char)*word ||
        (size_t)(scan->end - scan->at) < len || memcmp(scan->at, word, len) != 0)
        return false;
    scan->at += len;
    return true;
}

bool json_scan_null(struct json_scan *scan)
{
    return take_word(scan, "null");
}

static size_t take_digits(struct json_scan *scan)
{
    const unsigned char *from = scan->at;

    while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9')
        scan->at++;
    return (size_t)(scan->at - from);
}

static bool take_byte(struct json_scan *scan, char wanted)
{
    if (scan->at == scan->end || *scan->at != (unsigned char)wanted)
        return false;
    scan->at++;
    return true;
}

static bool skip_number(struct json_scan *scan)
{
    (void)take_byte(scan, '-');
    if (!take_byte(scan, '0') && !take_digits(scan))
        return json_scan_fail(scan, "a value is expected here");
    if (take_byte(scan, '.') && !take_digits(scan))
        return json_scan_fail(scan, "digits are expected behind the point");
    if (take_byte(scan, 'e') || take_byte(scan, 'E')) {
        if (!take_byte(scan, '+'))
            (void)take_byte(scan, '-');
        if (!take_digits(scan))
            return json_scan_fail(scan, "digits are expected in the exponent");
    }
    return true;
}

/* A string, a number or a word. */
static bool skip_plain(struct json_scan *scan, unsigned char first)
{
    const char *text;
    size_t len;

    if (first == '"')
        return json_scan_string(scan, &text, &len);
    return take_word(scan, "true") || take_word(scan, "false") || take_word(scan, "null") ||
           skip_number(scan);
}

/* Opens brackets without recursion: which ones are open is one bit a level. */
bool json_scan_skip(struct json_scan *scan)
{
    bool is_object[JSON_SCAN_DEPTH_MAX + 1];
    uint32_t base = scan->depth;
    const char *key;
    size_t len;

    for (;;) {
        unsigned char c = json_scan_peek(scan);
        if (scan->failed)
            return false;
        if (c == '{' || c == '[') {
            if (!open_bracket(scan, c, "a value"))
                return false;
            is_object[scan->depth] = c == '{';
        } else if (!skip_plain(scan, c)) {
            return false;
        }
        for (;;) { /* up, as long as brackets close */
            if (scan->depth == base)
                return !scan->failed;
            uint32_t depth = scan->depth;
            if (is_object[depth] ? json_scan_key(scan, &key, &len) : json_scan_item(scan))
                break;
            if (scan->failed)
                return false;
        }
    }
}

enum status json_scan_end(struct json_scan *scan, struct error *err)
{
    if (!scan->failed && json_scan_peek(scan))
        (void)json_scan_fail(scan, "something follows the end");
    if (!scan->failed && scan->at < scan->end)
        (void)json_scan_fail(scan, "a NUL follows the end");
    if (scan->failed)
        return error_set(err, STATUS_INVALID, "%s", scan->error.text);
    return STATUS_OK;
}
