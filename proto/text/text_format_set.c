/* text_format_set.c - one assignment, `roles.0.workers=4`. Any thread.
 *
 * Works on a copy, so that a failure changes nothing. */
#include "base/mem.h"
#include "proto/text/text_field.h"
#include "proto/text/text_format.h"
#include "proto/text/text_read.h"
#include "proto/text/text_scalar.h"
#include "proto/text/text_yaml.h"
#include <string.h>

/* One assignment on its way down the path. */
struct walk {
    struct problem_list *problems;
    char *rest;        /* of the path; cut at dots as it is used up */
    const char *value; /* behind '=' */
};

static char *next_part(struct walk *walk)
{
    char *part = walk->rest, *dot = part ? strchr(part, '.') : NULL;
    walk->rest = dot ? dot + 1 : NULL;
    if (dot)
        *dot = '\0';
    return part;
}

/* Strings are taken as they are; everything else is a piece of YAML. */
static void assign(struct walk *walk, ProtobufCMessage *message,
                   const ProtobufCFieldDescriptor *field)
{
    if (field->label != PROTOBUF_C_LABEL_REPEATED && field->type == PROTOBUF_C_TYPE_STRING) {
        char why[TEXT_SCALAR_WHY], *copy;
        struct text_scalar in = {walk->value, strlen(walk->value), false};
        if (!text_scalar_parse(field, in, &copy, why)) {
            problem_list_add(walk->problems, NULL, "field '%s': %s", field->name, why);
            return;
        }
        text_field_clear(message, field);
        memcpy(text_field_place(message, field), &copy, sizeof copy);
        return;
    }
    yaml_document_t doc;
    if (!text_yaml_compose(walk->value, strlen(walk->value), &doc, walk->problems))
        return;
    struct text_read read;
    text_read_init(&read, &doc, walk->problems);
    yaml_node_t *root = yaml_document_get_root_node(&doc);
    if (root)
        text_read_field(&read, root, message, field);
    else
        problem_list_add(walk->problems, NULL, "field '%s': no value behind '='", field->name);
    yaml_document_delete(&doc);
}

static char **name_place(ProtobufCMessage *message)
{
    const ProtobufCFieldDescriptor *name =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, "name");
    if (!name || name->type != PROTOBUF_C_TYPE_STRING || name->label == PROTOBUF_C_LABEL_REPEATED)
        return NULL;
    return text_field_place(message, name);
}

/* The element of a message list by its index or by its name; NULL when there is none. */
static ProtobufCMessage *find_element(ProtobufCMessage *message,
                                      const ProtobufCFieldDescriptor *field, const char *part)
{
    size_t count = text_field_count(message, field);
    for (size_t i = 0; i < count; i++) {
        ProtobufCMessage *item = *(ProtobufCMessage **)text_field_element(message, field, i);
        char **name = name_place(item);
        if (name && *name && strcmp(*name, part) == 0)
            return item;
    }
    uint64_t index;
    if (count > 0 && text_to_u64(part, 0, count - 1, &index))
        return *(ProtobufCMessage **)text_field_element(message, field, index);
    return NULL;
}

static ProtobufCMessage *append_pair(ProtobufCMessage *message,
                                     const ProtobufCFieldDescriptor *field, const char *name)
{
    ProtobufCMessage *pair = text_field_new_message(field->descriptor);
    *name_place(pair) = mem_strdup(name);
    memcpy(text_field_append(message, field), &pair, sizeof(ProtobufCMessage *));
    text_field_commit(message, field);
    return pair;
}

/* env.NAME=text: the whole rest of the path is the name. */
static void assign_pair(struct walk *walk, ProtobufCMessage *message,
                        const ProtobufCFieldDescriptor *field)
{
    if (!*walk->rest) {
        problem_list_add(walk->problems, NULL, "field '%s': no name behind the dot", field->name);
        return;
    }
    ProtobufCMessage *pair = find_element(message, field, walk->rest);
    if (!pair)
        pair = append_pair(message, field, walk->rest);
    assign(walk, pair, &pair->descriptor->fields[1]);
}

/* One step down into a sub-message; NULL with a problem. */
static ProtobufCMessage *descend(struct walk *walk, ProtobufCMessage *message,
                                 const ProtobufCFieldDescriptor *field)
{
    if (field->label != PROTOBUF_C_LABEL_REPEATED) {
        ProtobufCMessage **place = text_field_place(message, field);
        if (!*place)
            *place = text_field_new_message(field->descriptor);
        return *place;
    }
    const char *part = next_part(walk);
    size_t count = text_field_count(message, field);
    ProtobufCMessage *item = find_element(message, field, part);
    char quote[PROBLEM_QUOTE_SIZE];
    problem_list_quote(part, strlen(part), quote);
    if (!item && count == 0)
        problem_list_add(walk->problems, NULL, "field '%s' is empty: no entry '%s'", field->name,
                         quote);
    else if (!item)
        problem_list_add(walk->problems, NULL,
                         "field '%s' has no entry '%s'; give its name or an index 0..%zu",
                         field->name, quote, count - 1);
    else if (!walk->rest)
        problem_list_add(walk->problems, NULL, "'%s' is a whole entry of '%s'; name its field",
                         quote, field->name);
    return item && walk->rest ? item : NULL;
}

static void follow(struct walk *walk, ProtobufCMessage *message)
{
    while (message) {
        const char *part = next_part(walk);
        const ProtobufCFieldDescriptor *field =
            text_read_find(walk->problems, NULL, message->descriptor, part);
        if (!field)
            return;
        if (!walk->rest) {
            assign(walk, message, field);
            return;
        }
        if (text_field_is_pair(field)) {
            assign_pair(walk, message, field);
            return;
        }
        if (field->type != PROTOBUF_C_TYPE_MESSAGE) {
            problem_list_add(walk->problems, NULL, "field '%s' has no fields of its own",
                             field->name);
            return;
        }
        message = descend(walk, message, field);
    }
}

static void swap_content(ProtobufCMessage *a, ProtobufCMessage *b)
{
    size_t size = a->descriptor->sizeof_message;
    SCOPED_TEXT char *keep = mem_dup(a, size);
    memcpy(a, b, size);
    memcpy(b, keep, size);
}

enum status text_format_set(ProtobufCMessage *message, const char *assignment,
                            struct text *problems)
{
    char quote[PROBLEM_QUOTE_SIZE];
    SCOPED_TEXT char *name =
        mem_printf("set '%s'", problem_list_quote(assignment, strlen(assignment), quote));
    struct problem_list list = {name, false, problems, 0};
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment) {
        problem_list_add(&list, NULL, "wants field=value, such as roles.0.workers=4");
        return STATUS_INVALID;
    }
    SCOPED_TEXT char *path = mem_dup(assignment, (size_t)(equals - assignment) + 1);
    path[equals - assignment] = '\0';
    struct walk walk = {&list, path, equals + 1};
    ProtobufCMessage *copy = message_copy(message);
    follow(&walk, copy);
    if (list.count == 0)
        swap_content(message, copy);
    protobuf_c_message_free_unpacked(copy, NULL);
    return problem_list_end(&list);
}
