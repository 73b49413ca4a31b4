/* error_file.c - see error_file.h. */
#include "agent/error_file.h"
#include "base/mem.h"
#include <jansson.h>
#include <string.h>

void error_words_fini(struct error_words *words)
{
    mem_free(words->message);
    mem_free(words->traceback);
    *words = (struct error_words){NULL, NULL};
}

static size_t sequence_len(const char *at, size_t left)
{
    unsigned char first = (unsigned char)*at;
    size_t len = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0x80)
        return first >= 0x20 || first == '\n' || first == '\t' ? 1 : 0;
    return len <= left && text_is_utf8(at, len) ? len : 0;
}

char *error_file_clean(const char *bytes, size_t len, size_t max)
{
    struct text out;
    text_init(&out, max);
    for (size_t i = 0; i < len && out.len + 4 <= max;) {
        size_t good = sequence_len(bytes + i, len - i);
        if (good)
            text_add_bytes(&out, bytes + i, good);
        else if (bytes[i] != '\r')
            text_add_bytes(&out, "?", 1);
        i += good ? good : 1;
    }
    return out.len ? text_take(&out) : NULL;
}

static char *last_line(const char *bytes, size_t len)
{
    while (len && (bytes[len - 1] == '\n' || bytes[len - 1] == '\r' || bytes[len - 1] == ' '))
        len--;
    size_t start = len;
    while (start && bytes[start - 1] != '\n' && bytes[start - 1] != '\r')
        start--;
    return len > start ? error_file_clean(bytes + start, len - start, ERROR_FILE_MESSAGE_MAX)
                       : NULL;
}

/* The end is what matters of a long traceback. */
static char *tail_of(const char *bytes, size_t len)
{
    size_t most = ERROR_FILE_TRACEBACK_MAX - 4;
    return error_file_clean(len > most ? bytes + len - most : bytes, len > most ? most : len,
                            ERROR_FILE_TRACEBACK_MAX);
}

bool error_file_parse(const char *bytes, size_t len, struct error_words *out)
{
    json_t *root = len ? json_loadb(bytes, len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    json_t *message = json_object_get(root, "message");
    json_t *inner = json_is_object(message) ? json_object_get(message, "message") : message;
    json_t *stack = json_object_get(json_object_get(message, "extraInfo"), "py_callstack");
    const char *text = json_string_value(inner);
    if (text) {
        out->message = last_line(text, strlen(text));
        const char *trace = json_string_value(stack);
        trace = trace ? trace : text;
        out->traceback = tail_of(trace, strlen(trace));
    }
    json_decref(root);
    return text != NULL;
}

static const char *find_last(const char *bytes, size_t len, const char *what)
{
    const char *found = NULL;
    size_t size = strlen(what);
    for (const char *at = bytes; (at = memmem(at, len - (size_t)(at - bytes), what, size));
         at += size)
        found = at;
    return found;
}

bool error_file_stderr(const char *bytes, size_t len, struct error_words *out)
{
    out->message = last_line(bytes, len);
    const char *trace = len ? find_last(bytes, len, "Traceback (most recent call last)") : NULL;
    if (trace)
        out->traceback = tail_of(trace, len - (size_t)(trace - bytes));
    return out->message != NULL;
}
