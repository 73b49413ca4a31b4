#include "proto/text/text_read.h"
#include "base/map.h"
#include "base/mem.h"
#include "proto/text/text_field.h"
#include "proto/text/text_scalar.h"
#include "proto/text/text_yaml.h"
#include <stdio.h>
#include <string.h>

enum { FIELDS_MAX = 128 };

void text_read_init(struct text_read *read, yaml_document_t *doc, struct problem_list *problems)
{
    *read = (struct text_read){doc, problems, TEXT_YAML_NODES_MAX, TEXT_READ_BYTES_MAX};
}

static const char *kind_name(const yaml_node_t *node)
{
    return node->type == YAML_MAPPING_NODE    ? "a mapping"
           : node->type == YAML_SEQUENCE_NODE ? "a list"
                                              : "a single value";
}

/* Counts the visit. False: out of bounds (said once) or a tag that nothing here understands. */
static bool visit(struct text_read *read, const yaml_node_t *node)
{
    static const char standard[] = "tag:yaml.org,2002:";
    if (read->nodes_left == 0)
        return false;
    size_t bytes = node->type == YAML_SCALAR_NODE ? node->data.scalar.length : 0;
    if (--read->nodes_left == 0 || bytes > read->bytes_left) {
        problem_list_add(read->problems, &node->start_mark,
                         "more than %d values or %d MiB of text, aliases counted as often as used",
                         TEXT_YAML_NODES_MAX, TEXT_READ_BYTES_MAX >> 20);
        read->nodes_left = 0;
        return false;
    }
    read->bytes_left -= bytes;
    const char *tag = (const char *)node->tag;
    if (tag && strncmp(tag, standard, sizeof standard - 1) == 0)
        tag += sizeof standard - 1;
    if (tag && strcmp(tag, "str") != 0 && strcmp(tag, "seq") != 0 && strcmp(tag, "map") != 0) {
        char quote[PROBLEM_QUOTE_SIZE];
        problem_list_add(read->problems, &node->start_mark, "tag '%s' is not supported; remove it",
                         problem_list_quote(tag, strlen(tag), quote));
        return false;
    }
    return true;
}

static bool is_null(const yaml_node_t *node)
{
    if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    const char *text = (const char *)node->data.scalar.value;
    return !*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 ||
           strcmp(text, "Null") == 0 || strcmp(text, "NULL") == 0;
}

const ProtobufCFieldDescriptor *text_read_find(struct problem_list *problems,
                                               const yaml_mark_t *mark,
                                               const ProtobufCMessageDescriptor *type,
                                               const char *name)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(type, name);
    if (field)
        return field;
    const char *names[FIELDS_MAX];
    size_t count = 0;
    for (; count < type->n_fields && count < FIELDS_MAX; count++)
        names[count] = type->fields[count].name;
    const char *near = text_nearest(name, names, count);
    char quote[PROBLEM_QUOTE_SIZE], list[480];
    problem_list_quote(name, strlen(name), quote);
    problem_list_names(names, count, list, sizeof list);
    if (near)
        problem_list_add(problems, mark, "unknown field '%s' in %s; did you mean '%s'?", quote,
                         type->short_name, near);
    else if (strcmp(name, "<<") == 0)
        problem_list_add(problems, mark, "merge keys ('<<') are not supported; write the fields");
    else
        problem_list_add(problems, mark, "unknown field '%s' in %s, which has %s", quote,
                         type->short_name, list);
    return NULL;
}

/* One scalar into *element. */
static bool read_scalar(struct text_read *read, yaml_node_t *node,
                        const ProtobufCFieldDescriptor *field, void *element)
{
    char why[TEXT_SCALAR_WHY];
    if (node->type != YAML_SCALAR_NODE) {
        problem_list_add(read->problems, &node->start_mark,
                         "field '%s': wants a single value, not %s", field->name, kind_name(node));
        return false;
    }
    struct text_scalar in = {(const char *)node->data.scalar.value, node->data.scalar.length,
                             node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE};
    if (text_scalar_parse(field, in, element, why))
        return true;
    problem_list_add(read->problems, &node->start_mark, "field '%s': %s", field->name, why);
    return false;
}

/* One element, scalar or message. False: nothing is in *element. */
static bool read_element(struct text_read *read, yaml_node_t *node,
                         const ProtobufCFieldDescriptor *field, void *element)
{
    if (!visit(read, node))
        return false;
    if (is_null(node)) {
        problem_list_add(read->problems, &node->start_mark,
                         "field '%s': has no value; leave it out, or write '' for empty text",
                         field->name);
        return false;
    }
    if (field->type != PROTOBUF_C_TYPE_MESSAGE)
        return read_scalar(read, node, field, element);
    if (node->type != YAML_MAPPING_NODE) {
        problem_list_add(read->problems, &node->start_mark,
                         "field '%s': wants a mapping with the fields of %s, not %s", field->name,
                         ((const ProtobufCMessageDescriptor *)field->descriptor)->short_name,
                         kind_name(node));
        return false;
    }
    ProtobufCMessage *message = text_field_new_message(field->descriptor);
    text_read_message(read, node, message);
    memcpy(element, &message, sizeof message);
    return true;
}

static void read_list(struct text_read *read, yaml_node_t *node, ProtobufCMessage *message,
                      const ProtobufCFieldDescriptor *field)
{
    for (yaml_node_item_t *item = node->data.sequence.items.start;
         item < node->data.sequence.items.top && read->nodes_left; item++) {
        void *element = text_field_append(message, field);
        if (read_element(read, yaml_document_get_node(read->doc, *item), field, element))
            text_field_commit(message, field);
    }
}

/* The scalar of a key, or NULL with a problem. */
static const char *read_key(struct text_read *read, yaml_node_t *node)
{
    if (!visit(read, node))
        return NULL;
    const char *text = (const char *)node->data.scalar.value;
    if (node->type == YAML_SCALAR_NODE && strlen(text) == node->data.scalar.length)
        return text;
    problem_list_add(read->problems, &node->start_mark, "a key must be one word, not %s",
                     node->type == YAML_SCALAR_NODE ? "text with a NUL in it" : kind_name(node));
    return NULL;
}

static bool already_seen(struct text_read *read, struct map *seen, const char *name,
                         yaml_node_t *key, const char *kind)
{
    yaml_node_t *first = map_get_text(seen, name);
    char quote[PROBLEM_QUOTE_SIZE];
    if (!first) {
        map_put_text(seen, name, key);
        return false;
    }
    problem_list_add(read->problems, &key->start_mark, "%s '%s' is given twice; first in line %zu",
                     kind, problem_list_quote(name, strlen(name), quote),
                     first->start_mark.line + 1);
    return true;
}

/* {A: b} as a list of {name: A, value: b}. */
static void read_pair(struct text_read *read, const char *name, yaml_node_t *value,
                      ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const ProtobufCMessageDescriptor *type = field->descriptor;
    ProtobufCMessage *pair = text_field_new_message(type);
    char *copy = mem_strdup(name), why[TEXT_SCALAR_WHY], quote[PROBLEM_QUOTE_SIZE];
    memcpy(text_field_place(pair, &type->fields[0]), &copy, sizeof copy);
    memcpy(text_field_append(message, field), &pair, sizeof(ProtobufCMessage *));
    text_field_commit(message, field);
    if (!visit(read, value))
        return;
    problem_list_quote(name, strlen(name), quote);
    if (value->type != YAML_SCALAR_NODE || is_null(value)) {
        problem_list_add(read->problems, &value->start_mark,
                         "field '%s': '%s' wants a text, not %s", field->name, quote,
                         is_null(value) ? "nothing; write '' for empty text" : kind_name(value));
        return;
    }
    struct text_scalar in = {(const char *)value->data.scalar.value, value->data.scalar.length,
                             false};
    if (!text_scalar_parse(&type->fields[1], in, text_field_place(pair, &type->fields[1]), why))
        problem_list_add(read->problems, &value->start_mark, "field '%s': '%s': %s", field->name,
                         quote, why);
}

static void read_pairs(struct text_read *read, yaml_node_t *node, ProtobufCMessage *message,
                       const ProtobufCFieldDescriptor *field)
{
    struct map *seen = map_create();
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top && read->nodes_left; pair++) {
        yaml_node_t *key = yaml_document_get_node(read->doc, pair->key);
        const char *name = read_key(read, key);
        if (name && !already_seen(read, seen, name, key, field->name))
            read_pair(read, name, yaml_document_get_node(read->doc, pair->value), message, field);
    }
    map_destroy(seen);
}

static void read_repeated(struct text_read *read, yaml_node_t *node, ProtobufCMessage *message,
                          const ProtobufCFieldDescriptor *field)
{
    if (!visit(read, node))
        return;
    if (node->type == YAML_SEQUENCE_NODE) {
        read_list(read, node, message, field);
        return;
    }
    bool pair = text_field_is_pair(field);
    if (pair && node->type == YAML_MAPPING_NODE) {
        read_pairs(read, node, message, field);
        return;
    }
    const char *example = pair ? "a mapping such as {NAME: text}"
                          : field->type == PROTOBUF_C_TYPE_MESSAGE
                              ? "a list; start each entry with '- '"
                              : "a list such as [a, b]";
    problem_list_add(read->problems, &node->start_mark, "field '%s': wants %s, not %s", field->name,
                     example, is_null(node) ? "nothing" : kind_name(node));
}

void text_read_field(struct text_read *read, yaml_node_t *node, ProtobufCMessage *message,
                     const ProtobufCFieldDescriptor *field)
{
    union {
        double d;
        int64_t i;
        void *p;
        ProtobufCBinaryData b;
    } value;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        text_field_clear(message, field);
        read_repeated(read, node, message, field);
        return;
    }
    if (!read_element(read, node, field, &value))
        return;
    text_field_clear(message, field);
    memcpy(text_field_place(message, field), &value, text_scalar_size(field));
    text_field_mark(message, field);
}

void text_read_message(struct text_read *read, yaml_node_t *node, ProtobufCMessage *message)
{
    struct map *seen = map_create();
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top && read->nodes_left; pair++) {
        yaml_node_t *key = yaml_document_get_node(read->doc, pair->key);
        const char *name = read_key(read, key);
        const ProtobufCFieldDescriptor *field =
            name ? text_read_find(read->problems, &key->start_mark, message->descriptor, name)
                 : NULL;
        if (field && !already_seen(read, seen, name, key, "field"))
            text_read_field(read, yaml_document_get_node(read->doc, pair->value), message, field);
    }
    map_destroy(seen);
}
