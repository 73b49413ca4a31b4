#include "proto/text/text_scalar.h"
#include "base/mem.h"
#include "base/text.h"
#include "proto/text/job_limit.h"
#include "proto/text/problem_list.h"
#include "proto/text/text_base64.h"
#include "proto/text/text_unit.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ENUM_NAMES_MAX = 256 };

struct range {
    int64_t min;
    uint64_t max;
    bool wide; /* 64 bits: may be quoted, as our JSON writes it */
};

static bool range_of(ProtobufCType type, struct range *out)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        *out = (struct range){INT32_MIN, INT32_MAX, false};
        return true;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        *out = (struct range){INT64_MIN, INT64_MAX, true};
        return true;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        *out = (struct range){0, UINT32_MAX, false};
        return true;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        *out = (struct range){0, UINT64_MAX, true};
        return true;
    default:
        return false;
    }
}

size_t text_scalar_size(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_DOUBLE:
        return sizeof(double);
    case PROTOBUF_C_TYPE_FLOAT:
        return sizeof(float);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_ENUM:
        return sizeof(int);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    default:;
        struct range range = {0, 0, false};
        range_of(field->type, &range);
        return range.wide ? sizeof(int64_t) : sizeof(int32_t);
    }
}

/* Decimal digits without leading zeros, into a 64-bit magnitude. */
static bool digits_parse(const char *bytes, size_t len, uint64_t *out)
{
    uint64_t value = 0;
    if (len == 0 || (len > 1 && bytes[0] == '0'))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] < '0' || bytes[i] > '9' ||
            __builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(bytes[i] - '0'), &value))
            return false;
    }
    *out = value;
    return true;
}

/* The bits of the integer in *out, as two's complement. */
static bool integer_parse(struct range range, enum text_unit unit, struct text_scalar in,
                          uint64_t *out)
{
    bool minus = in.len > 0 && in.bytes[0] == '-';
    uint64_t size;
    if (!digits_parse(in.bytes + minus, in.len - minus, &size) &&
        (minus || !text_unit_parse(unit, in.bytes, in.len, &size)))
        return false;
    if (minus ? size > (uint64_t)0 - (uint64_t)range.min : size > range.max)
        return false;
    *out = minus ? (uint64_t)0 - size : size;
    return true;
}

/* In a job spec what the field allows, elsewhere what its type holds. */
static void say_range(const ProtobufCFieldDescriptor *field, struct range range, const char *quote,
                      char *why)
{
    const struct job_limit_number *row = job_limit_number_of(field);
    if (row)
        range = (struct range){row->min, (uint64_t)row->max, range.wide};
    snprintf(why, TEXT_SCALAR_WHY, "'%s' is not a whole number from %lld to %llu", quote,
             (long long)range.min, (unsigned long long)range.max);
}

static bool parse_integer(const ProtobufCFieldDescriptor *field, struct range range,
                          struct text_scalar in, void *out, char *why)
{
    char quote[PROBLEM_QUOTE_SIZE];
    enum text_unit unit = text_unit_of(field->name);
    uint64_t bits;
    bool bare = in.plain || range.wide || unit != TEXT_UNIT_NONE;
    if (bare && integer_parse(range, unit, in, &bits)) {
        if (range.wide)
            memcpy(out, &bits, sizeof bits);
        else
            memcpy(out, &(uint32_t){(uint32_t)bits}, sizeof(uint32_t));
        return true;
    }
    problem_list_quote(in.bytes, in.len, quote);
    if (!bare)
        snprintf(why, TEXT_SCALAR_WHY, "'%s' is quoted text; a number is written without quotes",
                 quote);
    else if (unit != TEXT_UNIT_NONE)
        snprintf(why, TEXT_SCALAR_WHY, "'%s' is not %s", quote, text_unit_examples(unit));
    else
        say_range(field, range, quote, why);
    return false;
}

static bool is_word(struct text_scalar in, const char *word)
{
    return in.len == strlen(word) && strncasecmp(in.bytes, word, in.len) == 0;
}

static bool parse_bool(struct text_scalar in, void *out, char *why)
{
    char quote[PROBLEM_QUOTE_SIZE];
    bool yes = is_word(in, "true");
    if (!in.plain || (!yes && !is_word(in, "false"))) {
        snprintf(why, TEXT_SCALAR_WHY, "'%s' is neither true nor false (written without quotes)",
                 problem_list_quote(in.bytes, in.len, quote));
        return false;
    }
    memcpy(out, &(protobuf_c_boolean){yes}, sizeof(protobuf_c_boolean));
    return true;
}

/* Words for values that digits cannot say: ours, as JSON has them, and YAML's. */
static bool special_parse(struct text_scalar in, double *out)
{
    if (is_word(in, "nan") || is_word(in, ".nan"))
        *out = NAN;
    else if (is_word(in, "infinity") || is_word(in, ".inf") || is_word(in, "+.inf"))
        *out = INFINITY;
    else if (is_word(in, "-infinity") || is_word(in, "-.inf"))
        *out = -INFINITY;
    else
        return false;
    return true;
}

static bool number_parse(struct text_scalar in, double *out)
{
    char copy[400], *end;
    if (!in.plain || in.len == 0 || in.len >= sizeof copy ||
        strspn(in.bytes, "0123456789.eE+-") < in.len || !strpbrk(in.bytes, "0123456789"))
        return false;
    memcpy(copy, in.bytes, in.len);
    copy[in.len] = '\0';
    double value = strtod(copy, &end);
    if (*end || !isfinite(value))
        return false;
    *out = value;
    return true;
}

static bool parse_real(const ProtobufCFieldDescriptor *field, struct text_scalar in, void *out,
                       char *why)
{
    char quote[PROBLEM_QUOTE_SIZE];
    double value;
    bool single = field->type == PROTOBUF_C_TYPE_FLOAT;
    bool good = special_parse(in, &value) || number_parse(in, &value);
    if (!good || (single && isfinite(value) && fabs(value) > FLT_MAX)) {
        snprintf(why, TEXT_SCALAR_WHY, "'%s' is not a number (NaN, Infinity and -Infinity are)",
                 problem_list_quote(in.bytes, in.len, quote));
        return false;
    }
    if (single)
        memcpy(out, &(float){(float)value}, sizeof(float));
    else
        memcpy(out, &value, sizeof value);
    return true;
}

static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        char x = (char)(*a == '-' ? '_' : *a), y = *b;
        if (strncasecmp(&x, &y, 1) != 0)
            return false;
    }
    return *a == *b;
}

const ProtobufCEnumValue *text_scalar_enum(const ProtobufCEnumDescriptor *type, const char *name)
{
    for (unsigned i = 0; i < type->n_values; i++)
        if (same_name(name, type->values[i].name))
            return &type->values[i];
    return NULL;
}

size_t text_scalar_enum_names(const ProtobufCEnumDescriptor *type, const char **names, size_t max)
{
    size_t count = 0;
    for (unsigned i = 0; i < type->n_values && count < max; i++) {
        const char *name = type->values[i].name;
        size_t len = strlen(name);
        if (type->values[i].value != 0 || len < 11 || strcmp(name + len - 11, "UNSPECIFIED") != 0)
            names[count++] = name;
    }
    return count;
}

static bool parse_enum(const ProtobufCFieldDescriptor *field, struct text_scalar in, void *out,
                       char *why)
{
    const ProtobufCEnumDescriptor *type = field->descriptor;
    char quote[PROBLEM_QUOTE_SIZE], list[280], upper[64];
    const char *names[ENUM_NAMES_MAX];
    SCOPED_TEXT char *word = mem_printf("%.*s", (int)(in.len < 256 ? in.len : 256), in.bytes);
    const ProtobufCEnumValue *value = text_scalar_enum(type, word);
    if (value) {
        memcpy(out, &value->value, sizeof value->value);
        return true;
    }
    size_t i = 0, count = text_scalar_enum_names(type, names, ENUM_NAMES_MAX);
    for (; word[i] && i + 1 < sizeof upper; i++)
        upper[i] = (char)(word[i] >= 'a' && word[i] <= 'z' ? word[i] - 32 : word[i]);
    upper[i] = '\0';
    const char *near = text_nearest(upper, names, count);
    problem_list_names(names, count, list, sizeof list);
    snprintf(why, TEXT_SCALAR_WHY, "'%s' is none of %s%s%s%s",
             problem_list_quote(in.bytes, in.len, quote), list, near ? "; did you mean '" : "",
             near ? near : "", near ? "'?" : "");
    return false;
}

static bool parse_string(struct text_scalar in, void *out, char *why)
{
    if (memchr(in.bytes, '\0', in.len)) {
        snprintf(why, TEXT_SCALAR_WHY, "the text holds a NUL character");
        return false;
    }
    if (!text_is_utf8(in.bytes, in.len)) {
        snprintf(why, TEXT_SCALAR_WHY, "the text is not valid UTF-8");
        return false;
    }
    char *copy = mem_alloc(in.len + 1);
    memcpy(copy, in.bytes, in.len);
    memcpy(out, &copy, sizeof copy);
    return true;
}

static bool parse_bytes(struct text_scalar in, void *out, char *why)
{
    ProtobufCBinaryData data;
    if (!text_base64_parse(in.bytes, in.len, &data.data, &data.len)) {
        snprintf(why, TEXT_SCALAR_WHY, "the text is not base64");
        return false;
    }
    memcpy(out, &data, sizeof data);
    return true;
}

bool text_scalar_parse(const ProtobufCFieldDescriptor *field, struct text_scalar in, void *out,
                       char why[TEXT_SCALAR_WHY])
{
    struct range range;
    if (range_of(field->type, &range))
        return parse_integer(field, range, in, out, why);
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return parse_bool(in, out, why);
    case PROTOBUF_C_TYPE_ENUM:
        return parse_enum(field, in, out, why);
    case PROTOBUF_C_TYPE_STRING:
        return parse_string(in, out, why);
    case PROTOBUF_C_TYPE_BYTES:
        return parse_bytes(in, out, why);
    default:
        return parse_real(field, in, out, why);
    }
}

static bool print_special(double value, char *out)
{
    if (isnan(value))
        snprintf(out, TEXT_SCALAR_DOUBLE, "NaN");
    else if (isinf(value))
        snprintf(out, TEXT_SCALAR_DOUBLE, "%s", value > 0 ? "Infinity" : "-Infinity");
    else if (value == 0 && signbit(value)) /* readers take -0 for an integer, which has no sign */
        snprintf(out, TEXT_SCALAR_DOUBLE, "-0.0");
    else
        return false;
    return true;
}

/* Numbers of 15 digits survive the way through a double, so 15 digits that read back are the
 * fewest; below the normal range fewer can do. */
void text_scalar_print_double(double value, char out[TEXT_SCALAR_DOUBLE])
{
    if (print_special(value, out))
        return;
    int digits = fabs(value) < DBL_MIN ? 1 : 15;
    do
        snprintf(out, TEXT_SCALAR_DOUBLE, "%.*g", digits, value);
    while (strtod(out, NULL) != value && digits++ < 17);
}

void text_scalar_print_float(float value, char out[TEXT_SCALAR_DOUBLE])
{
    if (print_special((double)value, out))
        return;
    int digits = fabsf(value) < FLT_MIN ? 1 : 6;
    do
        snprintf(out, TEXT_SCALAR_DOUBLE, "%.*g", digits, (double)value);
    while (strtof(out, NULL) != value && digits++ < 9);
}
