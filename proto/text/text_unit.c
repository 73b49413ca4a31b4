#include "proto/text/text_unit.h"
#include "base/mem.h"
#include <string.h>

struct scale {
    const char *name;
    uint64_t factor;
};
static const struct scale durations[] = {{"ms", 1},      {"s", 1000},     {"m", 60000},
                                         {"h", 3600000}, {"d", 86400000}, {NULL, 0}};
static const struct scale sizes[] = {
    {"KiB", 1},      {"MiB", 1 << 10}, {"GiB", 1 << 20},          {"TiB", 1 << 30}, {"Ki", 1},
    {"Mi", 1 << 10}, {"Gi", 1 << 20},  {"Ti", (uint64_t)1 << 30}, {NULL, 0}};

static bool ends_with(const char *text, size_t len, const char *tail)
{
    size_t n = strlen(tail);
    return len > n && memcmp(text + len - n, tail, n) == 0;
}

enum text_unit text_unit_of(const char *field_name)
{
    size_t len = strlen(field_name);
    if (ends_with(field_name, len, "_max"))
        len -= 4;
    if (ends_with(field_name, len, "_ms"))
        return TEXT_UNIT_MS;
    if (ends_with(field_name, len, "_s"))
        return TEXT_UNIT_S;
    return ends_with(field_name, len, "_mib") ? TEXT_UNIT_MIB : TEXT_UNIT_NONE;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* One number with optional decimals at bytes[*at], as value / 10^k with value's digits bounded. */
static bool take_number(const char *bytes, size_t len, size_t *at, uint64_t *value, uint64_t *div)
{
    size_t start = *at;
    *value = 0;
    *div = 1;
    bool decimals = false;
    for (; *at < len; (*at)++) {
        char c = bytes[*at];
        if (c == '.' && !decimals && *at > start && *at + 1 < len && is_digit(bytes[*at + 1])) {
            decimals = true;
            continue;
        }
        if (!is_digit(c))
            break;
        if (__builtin_mul_overflow(*value, (uint64_t)10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(c - '0'), value))
            return false;
        if (decimals && __builtin_mul_overflow(*div, (uint64_t)10, div))
            return false;
    }
    return *at > start;
}

/* The unit at bytes[*at]; it ends at a digit, or with the text. */
static const struct scale *take_scale(const struct scale *scales, const char *bytes, size_t len,
                                      size_t *at)
{
    size_t start = *at;
    while (*at < len && !is_digit(bytes[*at]))
        (*at)++;
    for (const struct scale *s = scales; s->name; s++)
        if (strlen(s->name) == *at - start && memcmp(s->name, bytes + start, *at - start) == 0)
            return s;
    return NULL;
}

/* Sum of number-unit pairs in the table's smallest unit. */
static bool take_sum(const struct scale *scales, const char *bytes, size_t len, uint64_t *out)
{
    uint64_t sum = 0, last = UINT64_MAX;
    size_t at = 0;
    while (at < len) {
        uint64_t value, div, product;
        if (!take_number(bytes, len, &at, &value, &div))
            return false;
        if (at < len && bytes[at] == ' ')
            at++;
        const struct scale *scale = take_scale(scales, bytes, len, &at);
        if (!scale || scale->factor >= last) /* 1h30m, not 30m1h or 1h1h */
            return false;
        last = scale->factor;
        if (__builtin_mul_overflow(value, scale->factor, &product) || product % div != 0 ||
            __builtin_add_overflow(sum, product / div, &sum))
            return false;
    }
    *out = sum;
    return len > 0;
}

bool text_unit_parse(enum text_unit unit, const char *bytes, size_t len, uint64_t *out)
{
    uint64_t sum, per = unit == TEXT_UNIT_S ? 1000 : unit == TEXT_UNIT_MIB ? 1024 : 1;
    if (unit == TEXT_UNIT_NONE ||
        !take_sum(unit == TEXT_UNIT_MIB ? sizes : durations, bytes, len, &sum) || sum % per != 0)
        return false;
    *out = sum / per;
    return true;
}

const char *text_unit_examples(enum text_unit unit)
{
    return unit == TEXT_UNIT_MS    ? "a number of milliseconds, or 500ms, 30s, 10m, 2h, 1h30m, 1d"
           : unit == TEXT_UNIT_S   ? "a number of seconds, or 30s, 10m, 2h, 1h30m, 1d"
           : unit == TEXT_UNIT_MIB ? "a number of MiB, or 512MiB, 4GiB, 1TiB"
                                   : "";
}
