#include "proto/text/text_field.h"
#include "base/mem.h"
#include "proto/text/text_scalar.h"
#include <assert.h>
#include <string.h>

static bool is_repeated(const ProtobufCFieldDescriptor *field)
{
    return field->label == PROTOBUF_C_LABEL_REPEATED;
}

static size_t *count_place(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    assert(is_repeated(field));
    return (size_t *)(void *)((char *)message + field->quantifier_offset);
}

void *text_field_place(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return (char *)message + field->offset;
}

static void *pointer_at(const void *place)
{
    void *pointer;
    memcpy(&pointer, place, sizeof pointer);
    return pointer;
}

bool text_field_is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (is_repeated(field))
        return *count_place(message, field) > 0;
    if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE) {
        const void *pointer = pointer_at(text_field_place(message, field));
        return pointer && pointer != field->default_value;
    }
    assert(field->label != PROTOBUF_C_LABEL_NONE && !(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF));
    return field->label == PROTOBUF_C_LABEL_REQUIRED ||
           *(const protobuf_c_boolean *)(const void *)((const char *)message +
                                                       field->quantifier_offset);
}

void text_field_mark(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    assert(!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF));
    if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->type != PROTOBUF_C_TYPE_STRING &&
        field->type != PROTOBUF_C_TYPE_MESSAGE)
        *(protobuf_c_boolean *)(void *)((char *)message + field->quantifier_offset) = 1;
}

size_t text_field_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return is_repeated(field) ? *count_place(message, field) : 1;
}

void *text_field_element(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                         size_t i)
{
    void *place = text_field_place(message, field);
    if (!is_repeated(field))
        return place;
    return (char *)pointer_at(place) + i * text_scalar_size(field);
}

/* What an element owns. */
static void element_free(const ProtobufCFieldDescriptor *field, void *element)
{
    void *pointer = pointer_at(element);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        if (pointer)
            protobuf_c_message_free_unpacked(pointer, NULL);
    } else if (field->type == PROTOBUF_C_TYPE_STRING) {
        if (pointer != field->default_value)
            mem_free(pointer);
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        ProtobufCBinaryData *data = element, *initial = (void *)(uintptr_t)field->default_value;
        if (!initial || data->data != initial->data)
            mem_free(data->data);
    }
}

static bool owns(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_MESSAGE || field->type == PROTOBUF_C_TYPE_STRING ||
           field->type == PROTOBUF_C_TYPE_BYTES;
}

void text_field_clear(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    size_t count = text_field_count(message, field);
    void *place = text_field_place(message, field);
    for (size_t i = 0; owns(field) && i < count; i++)
        element_free(field, text_field_element(message, field, i));
    if (is_repeated(field)) {
        mem_free(pointer_at(place));
        *count_place(message, field) = 0;
        memset(place, 0, sizeof(void *));
        return;
    }
    memset(place, 0, text_scalar_size(field));
    if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->type != PROTOBUF_C_TYPE_STRING &&
        field->type != PROTOBUF_C_TYPE_MESSAGE)
        *(protobuf_c_boolean *)(void *)((char *)message + field->quantifier_offset) = 0;
}

void *text_field_append(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    size_t count = *count_place(message, field), size = text_scalar_size(field);
    void *place = text_field_place(message, field);
    void *items = mem_resize(pointer_at(place), count + 1, size);
    memcpy(place, &items, sizeof(void *));
    void *element = (char *)items + count * size;
    memset(element, 0, size);
    return element;
}

void text_field_commit(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    ++*count_place(message, field);
}

ProtobufCMessage *text_field_new_message(const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *message = mem_alloc(type->sizeof_message);
    protobuf_c_message_init(type, message);
    return message;
}

bool text_field_is_pair(const ProtobufCFieldDescriptor *field)
{
    if (field->type != PROTOBUF_C_TYPE_MESSAGE || field->label != PROTOBUF_C_LABEL_REPEATED)
        return false;
    const ProtobufCMessageDescriptor *type = field->descriptor;
    return type->n_fields == 2 && strcmp(type->fields[0].name, "name") == 0 &&
           strcmp(type->fields[1].name, "value") == 0 &&
           type->fields[0].type == PROTOBUF_C_TYPE_STRING &&
           type->fields[1].type == PROTOBUF_C_TYPE_STRING;
}
