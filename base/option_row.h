/* option_row.h - what option*.c share about one row; for nobody else.
 *
 * Any thread. Owns nothing: values belong to the config. */
#pragma once
#include "base/option.h"

const struct option *option_row_find(const struct option *rows, const char *name); /* or NULL */
const char *option_row_nearest(const struct option *rows, const char *name);       /* or NULL */
int64_t option_row_least(const struct option *row);
int64_t option_row_most(const struct option *row); /* text: the longest, in bytes */
/* Parses value into the member; appends to a list. False, and nothing changes, when it does not
 * fit. */
bool option_row_set(const struct option *row, void *config, const char *value, size_t len);
void option_row_clear(const struct option *row, void *config); /* empties a list */
/* "a whole number from 1 to 600000". */
void option_row_expected(const struct option *row, char *out, size_t cap);
