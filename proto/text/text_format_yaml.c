/* text_format_yaml.c - any message as YAML that reads back as the same. Any thread. */
#include "proto/text/text_base64.h"
#include "proto/text/text_field.h"
#include "proto/text/text_format.h"
#include "proto/text/text_quote.h"
#include "proto/text/text_scalar.h"
#include <inttypes.h>
#include <string.h>

static void put_fields(const ProtobufCMessage *message, unsigned depth, bool after_dash,
                       struct text *out);

static void indent(unsigned depth, struct text *out)
{
    for (unsigned i = 0; i < depth; i++)
        text_add(out, "  ");
}

static void put_text(const char *text, struct text *out)
{
    text = text ? text : "";
    if (text_quote_is_plain(text))
        text_add(out, text);
    else
        text_quote(text, strlen(text), out);
}

static void put_real(const char *digits, struct text *out)
{
    text_add(out, strcmp(digits, "NaN") == 0         ? ".nan"
                  : strcmp(digits, "Infinity") == 0  ? ".inf"
                  : strcmp(digits, "-Infinity") == 0 ? "-.inf"
                                                     : digits);
}

static void put_scalar(const ProtobufCFieldDescriptor *field, const void *element, struct text *out)
{
    char digits[TEXT_SCALAR_DOUBLE];
    const ProtobufCBinaryData *bytes = element;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        put_text(*(const char *const *)element, out);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        text_add(out, "\"");
        text_base64_print(bytes->data, bytes->len, out);
        text_add(out, "\"");
        break;
    case PROTOBUF_C_TYPE_BOOL:
        text_add(out, *(const protobuf_c_boolean *)element ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_ENUM:
        text_add(out, enum_name(field->descriptor, *(const int *)element));
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        text_scalar_print_double(*(const double *)element, digits);
        put_real(digits, out);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        text_scalar_print_float(*(const float *)element, digits);
        put_real(digits, out);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        text_addf(out, "%" PRIu32, *(const uint32_t *)element);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        text_addf(out, "%" PRIu64, *(const uint64_t *)element);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        text_addf(out, "%" PRId64, *(const int64_t *)element);
        break;
    default:
        text_addf(out, "%" PRId32, *(const int32_t *)element);
    }
}

/* The name and the value of a pair. */
static const char *pair_text(const ProtobufCMessage *pair, unsigned field)
{
    return *(const char *const *)text_field_element(pair, &pair->descriptor->fields[field], 0);
}

/* As a mapping only where that reads back as the same list: names present and different, short
 * enough for a YAML key. A long list is compared with its sorted neighbours nowhere else, so the
 * quadratic check is bounded. */
static bool pairs_fit_mapping(const ProtobufCMessage *message,
                              const ProtobufCFieldDescriptor *field)
{
    size_t count = text_field_count(message, field);
    if (!text_field_is_pair(field) || count > 500)
        return false;
    for (size_t i = 0; i < count; i++) {
        ProtobufCMessage *const *pair = text_field_element(message, field, i);
        const char *name = pair_text(*pair, 0);
        if (!name || !pair_text(*pair, 1) || strlen(name) > 100)
            return false;
        for (size_t j = 0; j < i; j++) {
            ProtobufCMessage *const *other = text_field_element(message, field, j);
            if (strcmp(name, pair_text(*other, 0)) == 0)
                return false;
        }
    }
    return true;
}

static void put_pairs(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                      unsigned depth, struct text *out)
{
    text_add(out, "\n");
    for (size_t i = 0; i < text_field_count(message, field); i++) {
        ProtobufCMessage *const *pair = text_field_element(message, field, i);
        indent(depth, out);
        put_text(pair_text(*pair, 0), out);
        text_add(out, ": ");
        put_text(pair_text(*pair, 1), out);
        text_add(out, "\n");
    }
}

static void put_messages(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                         unsigned depth, struct text *out)
{
    text_add(out, "\n");
    for (size_t i = 0; i < text_field_count(message, field); i++) {
        indent(depth, out);
        text_add(out, "- ");
        put_fields(*(ProtobufCMessage *const *)text_field_element(message, field, i), depth + 1,
                   true, out);
    }
}

static void put_scalars(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                        struct text *out)
{
    text_add(out, " [");
    for (size_t i = 0; i < text_field_count(message, field); i++) {
        text_add(out, i ? ", " : "");
        put_scalar(field, text_field_element(message, field, i), out);
    }
    text_add(out, "]\n");
}

static void put_value(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                      unsigned depth, struct text *out)
{
    bool list = field->label == PROTOBUF_C_LABEL_REPEATED;
    if (list && pairs_fit_mapping(message, field)) {
        put_pairs(message, field, depth + 1, out);
    } else if (list && field->type == PROTOBUF_C_TYPE_MESSAGE) {
        put_messages(message, field, depth + 1, out);
    } else if (list) {
        put_scalars(message, field, out);
    } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        text_add(out, " ");
        put_fields(*(ProtobufCMessage *const *)text_field_place(message, field), depth + 1, false,
                   out);
    } else {
        text_add(out, " ");
        put_scalar(field, text_field_place(message, field), out);
        text_add(out, "\n");
    }
}

/* The fields of a message behind "name: " or behind "- ". */
static void put_fields(const ProtobufCMessage *message, unsigned depth, bool after_dash,
                       struct text *out)
{
    bool first = true;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (!text_field_is_set(message, field))
            continue;
        if (first && !after_dash)
            text_add(out, "\n");
        if (!first || !after_dash)
            indent(depth, out);
        first = false;
        text_addf(out, "%s:", field->name);
        put_value(message, field, depth, out);
    }
    if (first)
        text_add(out, "{}\n");
}

void text_format_yaml(const ProtobufCMessage *message, struct text *out)
{
    put_fields(message, 0, true, out);
}
