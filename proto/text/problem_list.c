#include "proto/text/problem_list.h"
#include "base/mem.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void problem_list_add(struct problem_list *list, const yaml_mark_t *mark, const char *fmt, ...)
{
    if (list->count++ >= PROBLEM_LIST_MAX || !list->out)
        return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (list->marks && mark)
        text_addf(list->out, "%s:%zu:%zu: %s\n", list->name, mark->line + 1, mark->column + 1,
                  line);
    else
        text_addf(list->out, "%s: %s\n", list->name, line);
}

enum status problem_list_end(struct problem_list *list)
{
    if (list->out && list->count > PROBLEM_LIST_MAX)
        text_addf(list->out, "%s: and %zu more problems\n", list->name,
                  list->count - PROBLEM_LIST_MAX);
    return list->count == 0 ? STATUS_OK : STATUS_INVALID;
}

struct problem_line {
    const char *start;
    size_t len, index;
    unsigned long long line, column; /* 0: of no place */
};

static int line_compare(const void *a, const void *b)
{
    const struct problem_line *x = a, *y = b;
    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    if (x->column != y->column)
        return x->column < y->column ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void read_place(const char *name, struct problem_line *out)
{
    size_t len = strlen(name);
    char *end;
    if (out->len <= len || strncmp(out->start, name, len) != 0 || out->start[len] != ':')
        return;
    unsigned long long line = strtoull(out->start + len + 1, &end, 10);
    if (*end != ':')
        return;
    unsigned long long column = strtoull(end + 1, &end, 10);
    if (*end != ':')
        return;
    out->line = line;
    out->column = column;
}

void problem_list_sort(const char *name, struct text *lines)
{
    struct problem_line *list = mem_array(PROBLEM_LIST_MAX + 1, sizeof *list);
    SCOPED_TEXT char *all = mem_strdup(text_get(lines));
    size_t count = 0;
    for (const char *at = all; *at;) {
        const char *end = strchr(at, '\n');
        size_t len = end ? (size_t)(end - at) + 1 : strlen(at);
        if (count && count % PROBLEM_LIST_MAX == 0)
            list = mem_resize(list, count + PROBLEM_LIST_MAX + 1, sizeof *list);
        list[count] = (struct problem_line){at, len, count, 0, 0};
        read_place(name, &list[count++]);
        at += len;
    }
    qsort(list, count, sizeof *list, line_compare);
    text_reset(lines);
    for (size_t i = 0; i < count; i++)
        text_add_bytes(lines, list[i].start, list[i].len);
    mem_free(list);
}

/* Bytes of the UTF-8 character that starts with lead. */
static size_t char_len(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

const char *problem_list_quote(const char *bytes, size_t len, char *out)
{
    size_t used = 0, at = 0;
    while (at < len && used < PROBLEM_QUOTE_SIZE - 8) {
        unsigned char c = (unsigned char)bytes[at];
        size_t n = char_len(c);
        if (n > len - at || !text_is_utf8(bytes + at, n) || c < 0x20 || c == 0x7f) {
            out[used++] = '?';
            at++;
            continue;
        }
        memcpy(out + used, bytes + at, n);
        used += n;
        at += n;
    }
    if (at < len) {
        memcpy(out + used, "...", 3);
        used += 3;
    }
    out[used] = '\0';
    return out;
}

void problem_list_names(const char *const *names, size_t count, char *out, size_t cap)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < count && used < cap; i++) {
        int n = snprintf(out + used, cap - used, "%s%s", i ? ", " : "", names[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used >= cap && cap > 4)
        memcpy(out + cap - 4, "...", 4);
}
