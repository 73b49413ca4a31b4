#include "ctl/args.h"
#include "base/mem.h"
#include <string.h>

static const struct {
    char letter;
    const char *name;
} letters[] = {{'f', "follow"}, {'o', "output"}, {'w', "wait"}, {'q', "quiet"}, {'s', "set"},
               {'a', "all"},    {'n', "limit"},  {'r', "rank"}, {'p', "plot"},  {'e', "stderr"}};

char args_letter(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(letters); i++)
        if (strcmp(letters[i].name, name) == 0)
            return letters[i].letter;
    return 0;
}

static const struct option *find(const struct option *rows, const char *name, size_t len)
{
    for (; rows->name; rows++) {
        size_t i = 0;
        while (i < len && rows->name[i] && (name[i] == '-' ? '_' : name[i]) == rows->name[i])
            i++;
        if (i == len && !rows->name[i])
            return rows;
    }
    return NULL;
}

/* The option that a letter stands for in this table; NULL. */
static const struct option *find_letter(const struct option *rows, char letter)
{
    for (size_t i = 0; i < COUNT_OF(letters); i++)
        if (letters[i].letter == letter)
            return find(rows, letters[i].name, strlen(letters[i].name));
    return NULL;
}

static const char *long_form(const struct option *row)
{
    static const char *const forms[] = {"--follow", "--output", "--wait", "--quiet", "--set",
                                        "--all",    "--limit",  "--rank", "--plot",  "--stderr"};
    for (size_t i = 0; i < COUNT_OF(forms); i++)
        if (strcmp(forms[i] + 2, row->name) == 0)
            return forms[i];
    return NULL;
}

/* One option word at argv[i] to out; returns the number of words it took, 0 for a problem. */
static int take_option(const struct option *rows, int left, char **argv, char **out, int *count,
                       struct text *problems)
{
    const char *word = argv[0];
    const struct option *row;
    if (word[1] == '-') {
        size_t len = strcspn(word + 2, "=");
        row = find(rows, word + 2, len);
        out[(*count)++] = argv[0];
        if (row && row->type != OPT_BOOL && !word[2 + len] && left > 1)
            out[(*count)++] = argv[1];
        return row && row->type != OPT_BOOL && !word[2 + len] && left > 1 ? 2 : 1;
    }
    if (word[1] == 'h' && !word[2]) {
        out[(*count)++] = argv[0];
        return 1;
    }
    row = word[2] ? NULL : find_letter(rows, word[1]);
    if (!row) {
        text_addf(problems, "%.40s: unknown option\n", word);
        return 0;
    }
    out[(*count)++] = (char *)(uintptr_t)long_form(row);
    if (row->type == OPT_BOOL)
        return 1;
    if (left < 2) {
        text_addf(problems, "%s: wants a value behind it\n", word);
        return 0;
    }
    out[(*count)++] = argv[1];
    return 2;
}

bool args_arrange(const struct option *rows, int argc, char **argv, char ***out, int *out_argc,
                  struct text *problems)
{
    char **list = mem_array((size_t)argc + 3, sizeof(char *));
    char **operands = mem_array((size_t)argc + 1, sizeof(char *));
    int count = 0, others = 0, step;
    static char end[] = "--";
    list[count++] = argv[0];
    for (int i = 1; i < argc; i += step) {
        step = 1;
        if (strcmp(argv[i], "--") == 0) {
            while (++i < argc)
                operands[others++] = argv[i];
        } else if (argv[i][0] != '-' || !argv[i][1]) {
            operands[others++] = argv[i];
        } else {
            step = take_option(rows, argc - i, argv + i, list, &count, problems);
        }
        if (step == 0) {
            mem_free(list);
            mem_free(operands);
            return false;
        }
    }
    list[count++] = end;
    memcpy(list + count, operands, (size_t)others * sizeof(char *));
    mem_free(operands);
    *out = list;
    *out_argc = count + others;
    return true;
}
