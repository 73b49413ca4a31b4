/* text_field.h - where a field lives inside a protobuf-c message: presence, lists, elements.
 *
 * Any thread; pure. proto2 messages without oneofs, which is all of ours. Elements are owned by the
 * message and freed with it by protobuf_c_message_free_unpacked(m, NULL). */
#pragma once
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

/* Repeated: not empty. Strings and messages: not NULL and not the default. Others: has_. */
bool text_field_is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
void *text_field_place(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
/* Singular scalars: sets has_. */
void text_field_mark(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
void text_field_clear(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
size_t text_field_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
/* Repeated: element i. Singular: the place itself (i is 0). */
void *text_field_element(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                         size_t i);
/* A zeroed element behind the last, not yet counted: text_field_commit counts it. */
void *text_field_append(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
void text_field_commit(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
ProtobufCMessage *text_field_new_message(const ProtobufCMessageDescriptor *type);
/* A message of exactly {string name, string value}: may be written as a mapping. */
bool text_field_is_pair(const ProtobufCFieldDescriptor *field);
