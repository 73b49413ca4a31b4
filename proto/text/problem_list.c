#include "proto/text/problem_list.h"
#include <stdio.h>
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
