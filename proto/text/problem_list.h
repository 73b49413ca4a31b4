/* problem_list.h - gathers every error of one input, a line each, with its place.
 *
 * Any thread, one at a time. Borrows the text that it appends to. Lines read
 * "job.yaml:6:15: field 'workers': ..."; without marks "set 'a.b=c': field ...". At most
 * PROBLEM_LIST_MAX lines are written; further ones are only counted. */
#pragma once
#include "base/error.h"
#include "base/text.h"
#include <yaml.h>

enum { PROBLEM_LIST_MAX = 100, PROBLEM_QUOTE_SIZE = 72 };

struct problem_list {
    const char *name; /* of the file or the assignment */
    bool marks;       /* places are known */
    struct text *out; /* NULL: only counted */
    size_t count;
};

/* mark NULL: the input as a whole. Adds nothing after the last line but the count. */
void problem_list_add(struct problem_list *list, const yaml_mark_t *mark, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* Says how many were left out, if any. STATUS_INVALID when there was a problem. */
enum status problem_list_end(struct problem_list *list);
/* Lines of this name by line and column, behind those that have no place; others stay in order. */
void problem_list_sort(const char *name, struct text *lines);
/* What the user wrote, for a message: printable, cut to fit out[PROBLEM_QUOTE_SIZE]. Returns out.
 */
const char *problem_list_quote(const char *bytes, size_t len, char *out);
/* "a, b, c" of names, cut at cap. */
void problem_list_names(const char *const *names, size_t count, char *out, size_t cap);
