/* ignore.h - which paths a .rondoignore leaves out.
 *
 * Any thread; pure. One pattern a line: shell globs; with a '/' inside or in front it is matched
 * against the whole path below the directory, else against each name; a '/' at the end means
 * directories only; '!' takes a path back in; '#' begins a comment. The last line that matches
 * wins. Built in, first: .git, __pycache__, *.pyc, .rondoignore. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { IGNORE_LINES_MAX = 1000, IGNORE_BYTES_MAX = 64 << 10 };
struct ignore;

struct ignore *ignore_create(const char *text); /* NULL: only what is built in */
void ignore_destroy(struct ignore *ignore);     /* NULL is fine */
bool ignore_match(const struct ignore *ignore, const char *path, bool is_dir);
