/* option_flags.c - the command line: --name value, --name=value, --flag, --no-flag.
 *
 * --config is looked up in a first walk over the arguments, so that flags win over the file
 * wherever it stands; the second walk sets values. Both walks share one idea of where an argument
 * ends. */
#include "base/mem.h"
#include "base/option_row.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION_NAME_MAX ((size_t)128)
#define OPTION_ROWS_MAX 256

struct option_walk {
    const struct option_page *page;
    void *config;
    int argc;
    char **argv;
    int at; /* the argument to read next */
    struct text *problems;
    bool wrong;
    bool given[OPTION_ROWS_MAX]; /* by row: a list's first flag replaces what the file said */
};

/* One argument, taken apart. */
struct option_word {
    char name[OPTION_NAME_MAX]; /* with _ for - and without a leading "no-" when that is meant */
    const char *flag;           /* as typed, for messages */
    int flag_len;
    const char *value; /* behind "=", or NULL */
    bool negated;
    const struct option *row; /* NULL: unknown */
};

static void walk_problem(struct option_walk *walk, const struct option_word *word, const char *what)
{
    walk->wrong = true;
    text_addf(walk->problems, "%.*s: %s\n", word->flag_len, word->flag, what);
}

static void word_split(struct option_word *word, const char *arg, const struct option *rows)
{
    const char *equals = strchr(arg, '=');
    size_t len = equals ? (size_t)(equals - arg) : strlen(arg);

    memset(word, 0, sizeof(*word));
    word->flag = arg;
    word->flag_len = (int)(len < OPTION_NAME_MAX ? len : OPTION_NAME_MAX);
    word->value = equals ? equals + 1 : NULL;
    len -= 2;
    if (len >= OPTION_NAME_MAX)
        len = OPTION_NAME_MAX - 1;
    for (size_t i = 0; i < len; i++)
        word->name[i] = (char)(arg[2 + i] == '-' ? '_' : arg[2 + i]);
    word->row = option_row_find(rows, word->name);
    if (!word->row && strncmp(word->name, "no_", 3) == 0) {
        const struct option *row = option_row_find(rows, word->name + 3);
        if (row && row->type == OPT_BOOL) {
            word->row = row;
            word->negated = true;
        }
    }
}

/* Whether the next argument is an option; "--" ends them and is passed over. */
static bool walk_at_option(struct option_walk *walk)
{
    if (walk->at >= walk->argc)
        return false;
    const char *arg = walk->argv[walk->at];
    if (strcmp(arg, "--") == 0) {
        walk->at++;
        return false;
    }
    return arg[0] == '-' && arg[1] != '\0';
}

static bool word_is_config(const struct option_word *word)
{
    return !word->row && strcmp(word->name, "config") == 0;
}

/* The value behind "=" or the next argument; NULL when there is none. */
static const char *walk_value(struct option_walk *walk, const struct option_word *word)
{
    if (word->value)
        return word->value;
    return walk->at < walk->argc ? walk->argv[walk->at++] : NULL;
}

/* --- first walk: --config, --help, --version */

static void walk_print_and_exit(void (*print)(const struct option_page *, struct text *),
                                const struct option_page *page)
{
    struct text out;

    text_init(&out, 0);
    print(page, &out);
    fputs(text_get(&out), stdout);
    text_fini(&out);
    exit(fflush(stdout) == 0 ? 0 : 1);
}

static void option_version(const struct option_page *page, struct text *out)
{
    text_addf(out, "%s %s\n", page->program, RONDO_VERSION);
}

static bool arg_is(const char *arg, const char *shorter, const char *longer)
{
    return strcmp(arg, shorter) == 0 || strcmp(arg, longer) == 0;
}

/* The file named by --config, or NULL. */
static const char *walk_find_config(struct option_walk *walk)
{
    const char *path = NULL;

    for (walk->at = 1; walk_at_option(walk);) {
        const char *arg = walk->argv[walk->at++];
        struct option_word word;
        if (arg_is(arg, "-h", "--help"))
            walk_print_and_exit(option_help, walk->page);
        if (arg_is(arg, "-V", "--version"))
            walk_print_and_exit(option_version, walk->page);
        if (strncmp(arg, "--", 2) != 0)
            continue;
        word_split(&word, arg, walk->page->rows);
        if (word_is_config(&word))
            path = walk_value(walk, &word);
        else if (word.row && word.row->type != OPT_BOOL)
            walk_value(walk, &word);
    }
    return path;
}

/* --- second walk: values */

static void walk_set_bool(struct option_walk *walk, const struct option_word *word)
{
    const char *value = word->value ? word->value : "true";

    if (word->negated && word->value) {
        walk_problem(walk, word, "takes no value");
        return;
    }
    if (word->negated)
        value = "false";
    if (!option_row_set(word->row, walk->config, value, strlen(value)))
        walk_problem(walk, word, "expected true or false");
}

static void walk_set(struct option_walk *walk, const struct option_word *word)
{
    char expected[128], line[256];
    size_t row = (size_t)(word->row - walk->page->rows);
    const char *value = walk_value(walk, word);

    if (row < OPTION_ROWS_MAX && !walk->given[row]) {
        walk->given[row] = true;
        option_row_clear(word->row, walk->config);
    }
    option_row_expected(word->row, expected, sizeof(expected));
    if (!value) {
        snprintf(line, sizeof(line), "expected %s behind it", expected);
        walk_problem(walk, word, line);
    } else if (!option_row_set(word->row, walk->config, value, strlen(value))) {
        snprintf(line, sizeof(line), "\"%.64s\" is not %s", value, expected);
        walk_problem(walk, word, line);
    }
}

static void walk_unknown(struct option_walk *walk, const struct option_word *word)
{
    const char *nearest = option_row_nearest(walk->page->rows, word->name);
    char line[256], flag[OPTION_NAME_MAX];
    size_t i = 0;

    for (; nearest && nearest[i] && i + 1 < sizeof(flag); i++)
        flag[i] = (char)(nearest[i] == '_' ? '-' : nearest[i]);
    flag[i] = '\0';
    if (nearest)
        snprintf(line, sizeof(line), "unknown option; did you mean --%s?", flag);
    else
        snprintf(line, sizeof(line), "unknown option; see %s --help", walk->page->program);
    walk_problem(walk, word, line);
}

static void walk_apply(struct option_walk *walk)
{
    for (walk->at = 1; walk_at_option(walk);) {
        const char *arg = walk->argv[walk->at++];
        struct option_word word;
        if (strncmp(arg, "--", 2) != 0) {
            word = (struct option_word){.flag = arg, .flag_len = (int)strnlen(arg, 64)};
            walk_unknown(walk, &word);
            continue;
        }
        word_split(&word, arg, walk->page->rows);
        if (word_is_config(&word)) {
            if (!walk_value(walk, &word))
                walk_problem(walk, &word, "expected a file behind it");
        } else if (!word.row) {
            walk_unknown(walk, &word);
        } else if (word.row->type == OPT_BOOL) {
            walk_set_bool(walk, &word);
        } else {
            walk_set(walk, &word);
        }
    }
}

enum status option_flags(const struct option_page *page, void *config, int argc, char **argv,
                         int *argi, struct text *problems)
{
    struct option_walk walk = {
        .page = page, .config = config, .argc = argc, .argv = argv, .problems = problems};
    enum status st = STATUS_OK;

    const char *path = walk_find_config(&walk);
    if (path)
        st = option_file(page->rows, config, path, problems);
    walk_apply(&walk);
    *argi = walk.at;
    return walk.wrong ? STATUS_INVALID : st;
}
