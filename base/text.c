/* text.c - the growing buffer, and small text helpers. */
#include "base/text.h"
#include "base/mem.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_init(struct text *text, size_t max)
{
    *text = (struct text){.max = max ? max : TEXT_MAX_DEFAULT};
}

void text_fini(struct text *text)
{
    mem_free(text->data);
    *text = (struct text){.max = text->max};
}

void text_reset(struct text *text)
{
    text->len = 0;
    text->full = false;
    if (text->data)
        text->data[0] = '\0';
}

/* Makes room for len more bytes and the NUL; false, and full, when that would pass max. */
static bool text_reserve(struct text *text, size_t len)
{
    size_t max = text->max ? text->max : TEXT_MAX_DEFAULT; /* a zeroed struct is a buffer too */
    if (len > max || text->len > max - len) {
        text->full = true;
        return false;
    }
    size_t need = text->len + len + 1;
    if (need > text->cap) {
        size_t cap = text->cap ? text->cap : 32;
        while (cap < need)
            cap *= 2;
        text->data = mem_resize(text->data, cap, 1);
        text->cap = cap;
    }
    return true;
}

void text_add_bytes(struct text *text, const void *bytes, size_t len)
{
    if (!text_reserve(text, len))
        return;
    if (len)
        memcpy(text->data + text->len, bytes, len);
    text->len += len;
    text->data[text->len] = '\0';
}

void text_add(struct text *text, const char *piece)
{
    text_add_bytes(text, piece, strlen(piece));
}

void text_addf(struct text *text, const char *fmt, ...)
{
    va_list args, again;
    char small[256];

    va_start(args, fmt);
    va_copy(again, args);
    int need = vsnprintf(small, sizeof(small), fmt, args);
    va_end(args);
    if (need < 0)
        text->full = true;
    else if ((size_t)need < sizeof(small))
        text_add_bytes(text, small, (size_t)need);
    else if (text_reserve(text, (size_t)need)) {
        vsnprintf(text->data + text->len, (size_t)need + 1, fmt, again);
        text->len += (size_t)need;
    }
    va_end(again);
}

const char *text_get(const struct text *text)
{
    return text->data ? text->data : "";
}

char *text_take(struct text *text)
{
    char *taken = text->data ? text->data : mem_strdup("");
    *text = (struct text){.max = text->max};
    return taken;
}

/* --- UTF-8 */

/* Length of the well-formed sequence at s (1-4), or 0. */
static size_t utf8_length(const unsigned char *s, size_t left)
{
    unsigned char low = 0x80, high = 0xbf; /* range of the second byte */
    size_t len;

    if (s[0] < 0x80)
        return s[0] ? 1 : 0;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        len = 2;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        len = 3;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        len = 4;
    else
        return 0;
    if (s[0] == 0xe0)
        low = 0xa0; /* overlong */
    else if (s[0] == 0xed)
        high = 0x9f; /* surrogates */
    else if (s[0] == 0xf0)
        low = 0x90; /* overlong */
    else if (s[0] == 0xf4)
        high = 0x8f; /* past U+10FFFF */
    if (left < len || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

bool text_is_utf8(const char *bytes, size_t len)
{
    const unsigned char *s = (const unsigned char *)bytes;
    for (size_t at = 0; at < len;) {
        size_t step = utf8_length(s + at, len - at);
        if (!step)
            return false;
        at += step;
    }
    return true;
}

/* --- nearest names */

#define TEXT_DISTANCE_LONGEST ((size_t)128)

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

int text_order(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t len = a_len < b_len ? a_len : b_len;
    int order = len ? memcmp(a, b, len) : 0;

    return order ? order : (a_len > b_len) - (a_len < b_len);
}

void text_cut(char *text, size_t max)
{
    size_t len = strnlen(text, max + 1);
    if (len <= max)
        return;
    len = max;
    while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
        len--;
    text[len] = '\0';
}

size_t text_distance(const char *a, const char *b, size_t limit)
{
    size_t rows[3][TEXT_DISTANCE_LONGEST + 1];
    size_t a_len = strlen(a), b_len = strlen(b);

    if ((a_len > b_len ? a_len - b_len : b_len - a_len) > limit)
        return limit + 1;
    if (b_len > TEXT_DISTANCE_LONGEST || a_len > TEXT_DISTANCE_LONGEST)
        return strcmp(a, b) == 0 ? 0 : limit + 1;
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *higher = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t change = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(change, least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], higher[j - 2] + 1);
        }
    }
    return least(rows[a_len % 3][b_len], limit + 1);
}

/* The shortest that begins with the word. */
static const char *text_begun(const char *word, const char *const *names, size_t count)
{
    size_t len = strlen(word);
    size_t shortest = SIZE_MAX;
    const char *found = NULL;

    for (size_t i = 0; len >= 3 && i < count; i++)
        if (names[i] && strncmp(names[i], word, len) == 0 && strlen(names[i]) < shortest) {
            found = names[i];
            shortest = strlen(found);
        }
    return found;
}

const char *text_nearest(const char *word, const char *const *names, size_t count)
{
    size_t limit = strlen(word) / 3 ? strlen(word) / 3 : 1;
    size_t best = limit + 1;
    const char *nearest = NULL;

    for (size_t i = 0; i < count; i++) {
        size_t distance = text_distance(word, names[i], limit);
        if (distance < best) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest ? nearest : text_begun(word, names, count);
}

/* --- numbers */

static bool text_is_decimal(const char *text, bool sign)
{
    if (sign && *text == '-')
        text++;
    return *text && strspn(text, "0123456789") == strlen(text);
}

bool text_to_i64(const char *text, int64_t min, int64_t max, int64_t *out)
{
    if (!text_is_decimal(text, true))
        return false;
    errno = 0;
    intmax_t value = strtoimax(text, NULL, 10);
    if (errno || value < min || value > max)
        return false;
    *out = value;
    return true;
}

bool text_to_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    if (!text_is_decimal(text, false))
        return false;
    errno = 0;
    uintmax_t value = strtoumax(text, NULL, 10);
    if (errno || value < min || value > max)
        return false;
    *out = value;
    return true;
}

void text_to_hex(const void *bytes, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = bytes;
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[from[i] >> 4];
        out[2 * i + 1] = digits[from[i] & 15];
    }
    out[2 * len] = '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool text_from_hex(const char *hex, void *out, size_t len)
{
    unsigned char *to = out;
    if (strnlen(hex, 2 * len + 1) != 2 * len)
        return false;
    for (size_t i = 0; i < 2 * len; i++)
        if (hex_digit(hex[i]) < 0)
            return false;
    for (size_t i = 0; i < len; i++)
        to[i] = (unsigned char)(hex_digit(hex[2 * i]) * 16 + hex_digit(hex[2 * i + 1]));
    return true;
}

/* --- amounts for people */

void text_bytes(uint64_t bytes, char *out, size_t cap)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double value = (double)bytes;

    while (value >= 1023.95 && unit + 1 < COUNT_OF(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(out, cap, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void text_duration_ms(uint64_t ms, char *out, size_t cap)
{
    uint64_t s = ms / 1000;

    if (ms < 1000)
        snprintf(out, cap, "%" PRIu64 " ms", ms);
    else if (s < 60)
        snprintf(out, cap, "%" PRIu64 ".%" PRIu64 " s", s, ms % 1000 / 100);
    else if (s < 3600)
        snprintf(out, cap, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, cap, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(out, cap, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s / 3600 % 24);
}
