/* option.h - one table of rows feeds YAML file, flags, --help and docs/reference.
 *
 * Loop thread, at start. A row names a member of the program's config struct. Order of strength:
 * default, file, flag. All errors of a file are reported in one run, as file:line:column. Text
 * values are owned by the config; option_fini frees them. */
#pragma once
#include "base/error.h"
#include "base/text.h"
#include <stdbool.h>
#include <stdint.h>

enum option_type {
    OPT_BOOL,
    OPT_U32,
    OPT_U64,
    OPT_I64,
    OPT_TEXT,
    OPT_LIST /* struct option_list: repeated text */
};
struct option_list {
    char **items;
    size_t count;
};
struct option {
    const char *name; /* lease_ms; the flag is --lease-ms; NULL ends the table */
    enum option_type type;
    size_t offset;     /* of the member */
    const char *value; /* default, as text; NULL: empty */
    int64_t min, max;  /* numbers: range; text: longest length in max (0: 4096) */
    const char *help;  /* one sentence */
};
/* A program's, or a verb's, usage page. */
struct option_page {
    const char *program, *summary, *usage, *examples; /* examples: lines, printed as they are */
    const struct option *rows;
};

/* Sets every member; text members are never NULL from here on. A list's default is cut at commas.
 * Aborts when a default breaks its own row. */
void option_defaults(const struct option *rows, void *config);
enum status
option_file(const struct option *rows, void *config, const char *path,
            struct text *problems) MUST_CHECK; /* problems: a line each, file:line:column */
/* Reads from argv[1] up to the first operand or "--". Takes --name value, --name=value, --flag,
 * --no-flag; --config FILE is read first wherever it stands; --help prints and exits 0. *argi is
 * the first argument after the options (verbs and operands stay). */
enum status option_flags(const struct option_page *page, void *config, int argc, char **argv,
                         int *argi, struct text *problems) MUST_CHECK;
void option_fini(const struct option *rows, void *config);
void option_help(const struct option_page *page, struct text *out);
void option_markdown(const struct option_page *page, struct text *out);
