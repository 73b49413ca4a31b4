#include "proto/text/job_file.h"
#include "base/mem.h"
#include "proto/text/job_check.h"
#include "proto/text/problem_list.h"
#include "proto/text/text_field.h"
#include "proto/text/text_format.h"
#include "proto/text/text_read.h"
#include "proto/text/text_yaml.h"
#include <stdio.h>
#include <string.h>

static const char no_digest[] = "0000000000000000000000000000000000000000000000000000000000000000";

/* The node under one part of a path: a key's value, or an item by index. */
static yaml_node_t *child_of(yaml_document_t *doc, yaml_node_t *node, const char *part, size_t len)
{
    if (node->type == YAML_MAPPING_NODE) {
        for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
             pair < node->data.mapping.pairs.top; pair++) {
            yaml_node_t *key = yaml_document_get_node(doc, pair->key);
            if (key->type == YAML_SCALAR_NODE && key->data.scalar.length == len &&
                memcmp(key->data.scalar.value, part, len) == 0)
                return yaml_document_get_node(doc, pair->value);
        }
        return NULL;
    }
    char digits[24];
    uint64_t index;
    snprintf(digits, sizeof digits, "%.*s", (int)(len < 20 ? len : 20), part);
    size_t count = node->type == YAML_SEQUENCE_NODE
                       ? (size_t)(node->data.sequence.items.top - node->data.sequence.items.start)
                       : 0;
    if (count == 0 || !text_to_u64(digits, 0, count - 1, &index))
        return NULL;
    return yaml_document_get_node(doc, node->data.sequence.items.start[index]);
}

/* Where the path stands in the file, or as much of it as there is. */
static yaml_mark_t locate(yaml_document_t *doc, const char *path, size_t len)
{
    yaml_node_t *node = yaml_document_get_root_node(doc);
    const char *end = path + len;
    while (path < end) {
        const char *dot = memchr(path, '.', (size_t)(end - path));
        size_t part = (size_t)((dot ? dot : end) - path);
        yaml_node_t *child = child_of(doc, node, path, part);
        if (!child)
            break;
        node = child;
        path += part + (dot != NULL);
    }
    return node->start_mark;
}

/* Is there a problem of that place already? It is then the cause of this one. */
static bool place_is_known(const struct text *known, const char *name, yaml_mark_t mark)
{
    SCOPED_TEXT char *start = mem_printf("%s:%zu:%zu:", name, mark.line + 1, mark.column + 1);
    for (const char *at = text_get(known); at && *at; at = strchr(at, '\n'), at += at != NULL)
        if (strncmp(at, start, strlen(start)) == 0)
            return true;
    return false;
}

/* The checker's lines "path: problem", with their places. */
static void place_problems(const char *checked, yaml_document_t *doc, struct problem_list *list)
{
    struct text known;
    text_init(&known, 0);
    text_add(&known, text_get(list->out));
    for (const char *line = checked; *line;) {
        const char *end = strchr(line, '\n'), *colon = strchr(line, ':');
        if (!end || !colon || colon > end)
            break;
        yaml_mark_t mark = locate(doc, line, (size_t)(colon - line));
        if (!place_is_known(&known, list->name, mark))
            problem_list_add(list, &mark, "field '%.*s'%.*s", (int)(colon - line), line,
                             (int)(end - colon), colon);
        line = end + 1;
    }
    text_fini(&known);
}

static void pack_code(const struct job_file *file, Pb__Code *code, yaml_document_t *doc,
                      struct problem_list *list)
{
    static const char path[] = "code.path";
    struct error err = {0};
    yaml_mark_t mark = locate(doc, path, strlen(path));
    if (file->pack(file->pack_arg, code, &err) != STATUS_OK)
        problem_list_add(list, &mark, "field '%s': %s", path, err.text);
}

static void check_spec(const struct job_file *file, Pb__JobSpec *spec, yaml_document_t *doc,
                       struct problem_list *list)
{
    struct text checked;
    text_init(&checked, 0);
    Pb__Code *code = spec->code;
    bool to_pack = code && code->path && *code->path && !code->on_nodes && !code->digest;
    if (to_pack)
        code->digest = mem_strdup(no_digest);
    if (job_check(spec, &checked) != STATUS_OK)
        place_problems(text_get(&checked), doc, list);
    if (to_pack) {
        mem_free(code->digest);
        code->digest = NULL;
    }
    text_fini(&checked);
    if (file->pack && code && code->path && *code->path && !code->on_nodes)
        pack_code(file, code, doc, list);
}

static void read_all(const struct job_file *file, yaml_document_t *doc, struct problem_list *list,
                     Pb__JobSpec *spec)
{
    struct text_read read;
    text_read_init(&read, doc, list);
    text_read_message(&read, yaml_document_get_root_node(doc), &spec->base);
    for (size_t i = 0; i < file->sets_count; i++)
        if (text_format_set(&spec->base, file->sets[i], list->out) != STATUS_OK)
            list->count++;
    check_spec(file, spec, doc, list);
}

static Pb__JobSpec *parse(const struct job_file *file, struct problem_list *list)
{
    yaml_document_t doc;
    if (!text_yaml_compose(file->yaml, file->len, &doc, list))
        return NULL;
    yaml_node_t *root = yaml_document_get_root_node(&doc);
    Pb__JobSpec *spec = NULL;
    if (root && root->type == YAML_MAPPING_NODE) {
        spec = (Pb__JobSpec *)text_field_new_message(&pb__job_spec__descriptor);
        read_all(file, &doc, list, spec);
    } else {
        problem_list_add(list, root ? &root->start_mark : &(yaml_mark_t){0, 0, 0},
                         "%s; a job file is a mapping that starts with 'name:'",
                         root ? "not a mapping" : "the file is empty");
    }
    yaml_document_delete(&doc);
    return spec;
}

enum status job_file_parse(const struct job_file *file, Pb__JobSpec **out, struct text *problems)
{
    struct text lines;
    text_init(&lines, 0);
    struct problem_list list = {file->name, true, &lines, 0};
    Pb__JobSpec *spec = parse(file, &list);
    problem_list_sort(file->name, &lines);
    enum status st = problem_list_end(&list);
    if (problems)
        text_add(problems, text_get(&lines));
    text_fini(&lines);
    if (st == STATUS_OK)
        *out = spec;
    else if (spec)
        protobuf_c_message_free_unpacked(&spec->base, NULL);
    return st;
}
