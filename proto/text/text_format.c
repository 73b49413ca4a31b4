#include "proto/text/text_format.h"
#include "base/mem.h"
#include "proto/text/text_field.h"
#include "proto/text/text_read.h"
#include "proto/text/text_yaml.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The document's root into a new message; NULL when there is no mapping at the root. */
static ProtobufCMessage *read_root(yaml_document_t *doc, const ProtobufCMessageDescriptor *type,
                                   struct problem_list *problems)
{
    static const yaml_mark_t top = {0, 0, 0};
    yaml_node_t *root = yaml_document_get_root_node(doc);
    if (!root || root->type != YAML_MAPPING_NODE) {
        problem_list_add(problems, root ? &root->start_mark : &top,
                         "%s; wanted a mapping with the fields of %s",
                         root ? "not a mapping" : "the file is empty", type->short_name);
        return NULL;
    }
    struct text_read read;
    text_read_init(&read, doc, problems);
    ProtobufCMessage *message = text_field_new_message(type);
    text_read_message(&read, root, message);
    return message;
}

enum status text_format_parse(const char *file_name, const char *yaml, size_t len,
                              const ProtobufCMessageDescriptor *type, ProtobufCMessage **out,
                              struct text *problems)
{
    struct problem_list list = {file_name, true, problems, 0};
    yaml_document_t doc;
    if (!text_yaml_compose(yaml, len, &doc, &list))
        return problem_list_end(&list);
    ProtobufCMessage *message = read_root(&doc, type, &list);
    yaml_document_delete(&doc);
    if (problem_list_end(&list) == STATUS_OK) {
        *out = message;
        return STATUS_OK;
    }
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
    return STATUS_INVALID;
}

/* Reads up to one byte past the limit, so that the parser can say that it is too long. */
static ssize_t read_file(int fd, char *buffer, size_t cap)
{
    size_t len = 0;
    while (len < cap) {
        ssize_t n = read(fd, buffer + len, cap - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

enum status text_format_load(const char *path, const ProtobufCMessageDescriptor *type,
                             ProtobufCMessage **out, struct text *problems)
{
    enum { CAP = TEXT_YAML_BYTES_MAX + 1 };
    struct problem_list list = {path, false, problems, 0};
    int fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        problem_list_add(&list, NULL, "open: %s", strerror(errno));
        return errno == ENOENT ? STATUS_NOT_FOUND : STATUS_INVALID;
    }
    SCOPED_TEXT char *buffer = mem_alloc(CAP);
    ssize_t len = read_file(fd, buffer, CAP);
    int code = errno;
    close(fd);
    if (len < 0) {
        problem_list_add(&list, NULL, "read: %s", strerror(code));
        return STATUS_INVALID;
    }
    const char *name = strcmp(path, "-") == 0 ? "<stdin>" : path;
    return text_format_parse(name, buffer, (size_t)len, type, out, problems);
}
