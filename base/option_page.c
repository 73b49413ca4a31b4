/* option_page.c - what people read about the rows: --help and the Markdown reference. */
#include "base/mem.h"
#include "base/option_row.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OPTION_HELP_WIDTH  80
#define OPTION_HELP_INDENT 6

static const char *option_page_kind(const struct option *row)
{
    switch (row->type) {
    case OPT_BOOL:
        return "";
    case OPT_U32:
    case OPT_U64:
    case OPT_I64:
        return " N";
    case OPT_TEXT:
        return " TEXT";
    case OPT_LIST:
        return " TEXT (repeatable)";
    }
    return "";
}

static void option_page_flag(const struct option *row, struct text *out)
{
    text_add(out, row->type == OPT_BOOL ? "--[no-]" : "--");
    for (const char *c = row->name; *c; c++)
        text_add_bytes(out, *c == '_' ? "-" : c, 1);
    text_add(out, option_page_kind(row));
}

/* Breaks a sentence at spaces so that no line passes the width. */
static void option_page_wrap(const char *sentence, struct text *out)
{
    size_t column = 0;

    while (*sentence) {
        size_t len = strcspn(sentence, " ");
        if (column == 0 || column + 1 + len > OPTION_HELP_WIDTH) {
            text_addf(out, "%s%*s", column ? "\n" : "", OPTION_HELP_INDENT, "");
            column = OPTION_HELP_INDENT;
        } else {
            text_add(out, " ");
            column++;
        }
        text_add_bytes(out, sentence, len);
        column += len;
        sentence += len;
        sentence += strspn(sentence, " ");
    }
    text_add(out, "\n");
}

static bool option_page_has_range(const struct option *row)
{
    return row->type != OPT_BOOL && (row->min || row->max);
}

static void option_page_range(const struct option *row, struct text *out)
{
    if (row->type == OPT_TEXT || row->type == OPT_LIST)
        text_addf(out, "up to %" PRId64 " bytes", option_row_most(row));
    else if (option_row_most(row) == INT64_MAX)
        text_addf(out, "from %" PRId64, option_row_least(row));
    else
        text_addf(out, "%" PRId64 " to %" PRId64, option_row_least(row), option_row_most(row));
}

static void option_page_help_row(const struct option *row, struct text *out)
{
    struct text help;

    text_add(out, "  ");
    option_page_flag(row, out);
    text_add(out, "\n");
    text_init(&help, 0);
    text_add(&help, row->help ? row->help : "");
    if (row->value && *row->value)
        text_addf(&help, " Default: %s.", row->value);
    if (option_page_has_range(row)) {
        text_add(&help, " Range: ");
        option_page_range(row, &help);
        text_add(&help, ".");
    }
    option_page_wrap(text_get(&help), out);
    text_fini(&help);
}

void option_help(const struct option_page *page, struct text *out)
{
    text_addf(out, "%s - %s\n\nUsage: %s\n\nOptions:\n", page->program, page->summary, page->usage);
    for (const struct option *row = page->rows; row->name; row++)
        option_page_help_row(row, out);
    if (!option_row_find(page->rows, "config"))
        text_add(out, "  --config FILE\n      Read options from a YAML file first; flags win.\n");
    text_add(out, "  --help\n      Print this page.\n  --version\n      Print the version.\n");
    if (page->examples && *page->examples) {
        size_t len = strlen(page->examples);
        text_addf(out, "\nExamples:\n%s%s", page->examples,
                  page->examples[len - 1] == '\n' ? "" : "\n");
    }
}

/* A table cell: a bar would end it. */
static void option_page_cell(const char *words, struct text *out)
{
    for (; *words; words++) {
        if (*words == '|')
            text_add(out, "\\");
        text_add_bytes(out, words, 1);
    }
}

void option_markdown(const struct option_page *page, struct text *out)
{
    text_addf(out, "# %s\n\n%s\n\n```\n%s\n```\n\n", page->program, page->summary, page->usage);
    text_add(out, "| in the file | flag | default | range | meaning |\n|---|---|---|---|---|\n");
    for (const struct option *row = page->rows; row->name; row++) {
        text_addf(out, "| `%s` | `", row->name);
        option_page_flag(row, out);
        text_add(out, "` | ");
        if (row->value && *row->value)
            text_addf(out, "`%s`", row->value);
        text_add(out, " | ");
        if (option_page_has_range(row))
            option_page_range(row, out);
        text_add(out, " | ");
        option_page_cell(row->help ? row->help : "", out);
        text_add(out, " |\n");
    }
    if (page->examples && *page->examples)
        text_addf(out, "\n```sh\n%s\n```\n", page->examples);
}
