/* text_read.h - libyaml's nodes to a message, by the message's descriptor.
 *
 * Any thread; no I/O. Everything wrong goes to the problem list with its place; reading goes on
 * behind it. Whatever was read is in the message, which stays valid and can always be freed. Bounds
 * count what is visited, so that aliases cannot multiply: nodes, and bytes of text copied. */
#pragma once
#include "proto/text/problem_list.h"
#include <protobuf-c/protobuf-c.h>
#include <yaml.h>

enum { TEXT_READ_BYTES_MAX = 16 << 20 };

struct text_read {
    yaml_document_t *doc;
    struct problem_list *problems;
    size_t nodes_left, bytes_left; /* set by text_read_init */
};

void text_read_init(struct text_read *read, yaml_document_t *doc, struct problem_list *problems);
/* The node's mapping into an initialised message. */
void text_read_message(struct text_read *read, yaml_node_t *node, ProtobufCMessage *message);
/* The node as the whole value of one field, which is replaced. */
void text_read_field(struct text_read *read, yaml_node_t *node, ProtobufCMessage *message,
                     const ProtobufCFieldDescriptor *field);
/* The field of that name, or NULL with a problem that names the nearest. */
const ProtobufCFieldDescriptor *text_read_find(struct problem_list *problems,
                                               const yaml_mark_t *mark,
                                               const ProtobufCMessageDescriptor *type,
                                               const char *name);
