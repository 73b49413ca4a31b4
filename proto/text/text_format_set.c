/* text_format_set.c - one assignment: `roles.0.workers=4`, `roles[trainer].command[2]=x`. Any
 * thread.
 *
 * Works on a copy, so that a failure changes nothing. Entries of a list go by index or by name,
 * behind a dot or in brackets. */
#include "base/mem.h"
#include "proto/text/text_field.h"
#include "proto/text/text_format.h"
#include "proto/text/text_read.h"
#include "proto/text/text_scalar.h"
#include "proto/text/text_yaml.h"
#include <stdio.h>
#include <string.h>

enum { NAMES_MAX = 64 };

/* One assignment on its way down the path. */
struct walk {
    struct problem_list *problems;
    char *rest;        /* of the path; cut up as it is used; NULL at its end */
    bool bracket;      /* rest begins inside of one */
    const char *value; /* behind '=' */
};

/* "2]...": up to the bracket's end. */
static char *bracket_part(struct walk *walk)
{
    char *part = walk->rest, *end = strchr(part, ']');
    char quote[PROBLEM_QUOTE_SIZE];
    problem_list_quote(part, strlen(part), quote);
    walk->bracket = false;
    walk->rest = NULL;
    if (!end || (end[1] && end[1] != '.' && end[1] != '[')) {
        problem_list_add(walk->problems, NULL, "no ']' and '.' behind '[%s'", quote);
        return NULL;
    }
    if (end[1]) {
        walk->bracket = end[1] == '[';
        walk->rest = end + 2;
    }
    *end = '\0';
    return part;
}

/* NULL with a problem. */
static char *next_part(struct walk *walk)
{
    char *part = walk->rest;
    if (walk->bracket)
        return bracket_part(walk);
    char *end = part + strcspn(part, ".[");
    walk->rest = *end ? end + 1 : NULL;
    walk->bracket = *end == '[';
    *end = '\0';
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

static const char *element_name(const ProtobufCMessage *message,
                                const ProtobufCFieldDescriptor *field, size_t i)
{
    char **name = name_place(*(ProtobufCMessage **)text_field_element(message, field, i));
    return name ? *name : NULL;
}

/* The element of a message list by its index or by its name; NULL when there is none. */
static ProtobufCMessage *find_element(ProtobufCMessage *message,
                                      const ProtobufCFieldDescriptor *field, const char *part)
{
    size_t count = text_field_count(message, field);
    for (size_t i = 0; i < count; i++) {
        const char *name = element_name(message, field, i);
        if (name && strcmp(name, part) == 0)
            return *(ProtobufCMessage **)text_field_element(message, field, i);
    }
    uint64_t index;
    if (count > 0 && text_to_u64(part, 0, count - 1, &index))
        return *(ProtobufCMessage **)text_field_element(message, field, index);
    return NULL;
}

static void say_no_element(struct walk *walk, const ProtobufCMessage *message,
                           const ProtobufCFieldDescriptor *field, const char *part)
{
    const char *names[NAMES_MAX];
    size_t count = text_field_count(message, field), named = 0;
    char quote[PROBLEM_QUOTE_SIZE];
    bool entries = field->type == PROTOBUF_C_TYPE_MESSAGE;
    problem_list_quote(part, strlen(part), quote);
    for (size_t i = 0; entries && i < count && named < NAMES_MAX; i++)
        if (element_name(message, field, i))
            names[named++] = element_name(message, field, i);
    const char *near = named ? text_nearest(part, names, named) : NULL;
    if (count == 0)
        problem_list_add(walk->problems, NULL, "field '%s' is empty: no entry '%s'", field->name,
                         quote);
    else if (near)
        problem_list_add(walk->problems, NULL, "field '%s' has no entry '%s'; did you mean '%s'?",
                         field->name, quote, near);
    else
        problem_list_add(walk->problems, NULL, "field '%s' has no entry '%s'; give %s 0..%zu",
                         field->name, quote, named ? "its name or an index" : "an index",
                         count - 1);
}

/* command[2]=x: one value of a list of values. */
static void assign_value(struct walk *walk, ProtobufCMessage *message,
                         const ProtobufCFieldDescriptor *field)
{
    const char *part = next_part(walk);
    size_t count = text_field_count(message, field);
    union {
        double d;
        int64_t i;
        char *text;
        ProtobufCBinaryData b;
    } value;
    uint64_t index;
    char why[TEXT_SCALAR_WHY];
    if (!part)
        return;
    if (count == 0 || !text_to_u64(part, 0, count - 1, &index)) {
        say_no_element(walk, message, field, part);
        return;
    }
    if (walk->rest) {
        problem_list_add(walk->problems, NULL, "an entry of '%s' has no fields", field->name);
        return;
    }
    bool text = field->type == PROTOBUF_C_TYPE_STRING;
    struct text_scalar in = {walk->value, strlen(walk->value), !text};
    if (!text_scalar_parse(field, in, &value, why)) {
        problem_list_add(walk->problems, NULL, "field '%s': %s", field->name, why);
        return;
    }
    void *place = text_field_element(message, field, index);
    if (text)
        mem_free(*(char **)place);
    memcpy(place, &value, text_scalar_size(field));
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
    const char *name = walk->bracket ? bracket_part(walk) : walk->rest;
    if (!name)
        return;
    if (!*name) {
        problem_list_add(walk->problems, NULL, "field '%s': no name behind the dot", field->name);
        return;
    }
    ProtobufCMessage *pair = find_element(message, field, name);
    if (!pair)
        pair = append_pair(message, field, name);
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
    ProtobufCMessage *item = part ? find_element(message, field, part) : NULL;
    char quote[PROBLEM_QUOTE_SIZE];
    if (part && !item)
        say_no_element(walk, message, field, part);
    else if (item && !walk->rest)
        problem_list_add(walk->problems, NULL, "'%s' is a whole entry of '%s'; name its field",
                         problem_list_quote(part, strlen(part), quote), field->name);
    return item && walk->rest ? item : NULL;
}

/* workers.min is workers_min, where workers has no fields of its own. */
static void assign_joined(struct walk *walk, ProtobufCMessage *message,
                          const ProtobufCFieldDescriptor *field)
{
    const char *part = next_part(walk);
    SCOPED_TEXT char *name = part ? mem_printf("%s_%s", field->name, part) : NULL;
    const ProtobufCFieldDescriptor *joined =
        name ? protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name) : NULL;
    if (joined && !walk->rest)
        assign(walk, message, joined);
    else if (part)
        problem_list_add(walk->problems, NULL, "field '%s' has no fields of its own", field->name);
}

/* The rest of the path leads into this field. */
static ProtobufCMessage *enter(struct walk *walk, ProtobufCMessage *message,
                               const ProtobufCFieldDescriptor *field)
{
    if (text_field_is_pair(field))
        assign_pair(walk, message, field);
    else if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return descend(walk, message, field);
    else if (field->label == PROTOBUF_C_LABEL_REPEATED)
        assign_value(walk, message, field);
    else
        assign_joined(walk, message, field);
    return NULL;
}

static void follow(struct walk *walk, ProtobufCMessage *message)
{
    while (message) {
        const char *part = next_part(walk);
        const ProtobufCFieldDescriptor *field =
            part ? text_read_find(walk->problems, NULL, message->descriptor, part) : NULL;
        if (!field)
            return;
        if (!walk->rest) {
            assign(walk, message, field);
            return;
        }
        message = enter(walk, message, field);
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
    struct walk walk = {&list, path, false, equals + 1};
    ProtobufCMessage *copy = message_copy(message);
    follow(&walk, copy);
    if (list.count == 0)
        swap_content(message, copy);
    protobuf_c_message_free_unpacked(copy, NULL);
    return problem_list_end(&list);
}
