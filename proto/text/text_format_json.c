/* text_format_json.c - any message as JSON. Any thread. */
#include "proto/text/text_base64.h"
#include "proto/text/text_field.h"
#include "proto/text/text_format.h"
#include "proto/text/text_quote.h"
#include "proto/text/text_scalar.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

struct writer {
    struct text *out;
    bool pretty;
};

static void put_message(struct writer *w, const ProtobufCMessage *message, unsigned depth);

static void new_line(struct writer *w, unsigned depth)
{
    if (!w->pretty)
        return;
    text_add(w->out, "\n");
    for (unsigned i = 0; i < depth; i++)
        text_add(w->out, "  ");
}

static void put_real(struct writer *w, double value, const char *digits)
{
    text_addf(w->out, isfinite(value) ? "%s" : "\"%s\"", digits);
}

static void put_scalar(struct writer *w, const ProtobufCFieldDescriptor *field, const void *element)
{
    char digits[TEXT_SCALAR_DOUBLE];
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        text_add(w->out, *(const protobuf_c_boolean *)element ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_ENUM:
        text_addf(w->out, "\"%s\"", enum_name(field->descriptor, *(const int *)element));
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        text_scalar_print_double(*(const double *)element, digits);
        put_real(w, *(const double *)element, digits);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        text_scalar_print_float(*(const float *)element, digits);
        put_real(w, (double)*(const float *)element, digits);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        text_addf(w->out, "%" PRIu32, *(const uint32_t *)element);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        text_addf(w->out, "\"%" PRIu64 "\"", *(const uint64_t *)element);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        text_addf(w->out, "\"%" PRId64 "\"", *(const int64_t *)element);
        break;
    default:
        text_addf(w->out, "%" PRId32, *(const int32_t *)element);
    }
}

static void put_element(struct writer *w, const ProtobufCFieldDescriptor *field,
                        const void *element, unsigned depth)
{
    const ProtobufCBinaryData *bytes = element;
    const char *text;
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        put_message(w, *(ProtobufCMessage *const *)element, depth);
        break;
    case PROTOBUF_C_TYPE_STRING:
        text = *(const char *const *)element ? *(const char *const *)element : "";
        text_quote(text, strlen(text), w->out);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        text_add(w->out, "\"");
        text_base64_print(bytes->data, bytes->len, w->out);
        text_add(w->out, "\"");
        break;
    default:
        put_scalar(w, field, element);
    }
}

static void put_field(struct writer *w, const ProtobufCMessage *message,
                      const ProtobufCFieldDescriptor *field, unsigned depth)
{
    bool list = field->label == PROTOBUF_C_LABEL_REPEATED;
    bool lines = list && field->type == PROTOBUF_C_TYPE_MESSAGE;
    size_t count = text_field_count(message, field);
    text_addf(w->out, "\"%s\":%s%s", field->name, w->pretty ? " " : "", list ? "[" : "");
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            text_add(w->out, w->pretty && !lines ? ", " : ",");
        if (lines)
            new_line(w, depth + 1);
        put_element(w, field, text_field_element(message, field, i), depth + lines);
    }
    if (lines)
        new_line(w, depth);
    if (list)
        text_add(w->out, "]");
}

static void put_message(struct writer *w, const ProtobufCMessage *message, unsigned depth)
{
    bool any = false;
    text_add(w->out, "{");
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (!text_field_is_set(message, field))
            continue;
        if (any)
            text_add(w->out, ",");
        any = true;
        new_line(w, depth + 1);
        put_field(w, message, field, depth + 1);
    }
    if (any)
        new_line(w, depth);
    text_add(w->out, "}");
}

void text_format_json(const ProtobufCMessage *message, enum text_format_style style,
                      struct text *out)
{
    struct writer w = {out, style == TEXT_FORMAT_PRETTY};
    put_message(&w, message, 0);
    if (w.pretty)
        text_add(out, "\n");
}
