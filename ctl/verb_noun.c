/* verb_noun.c - nouns: verbs below a word of their own. See verb.h. */
#include "base/mem.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include <stdio.h>
#include <string.h>

enum { NOUN_VERBS_MAX = 32 };

/* "list" of "checkpoint list". */
static const char *last_word(const struct verb *verb)
{
    const char *space = strrchr(verb->name, ' ');
    return space ? space + 1 : verb->name;
}

const struct verb *verb_noun_find(const struct verb *noun, const char *word)
{
    for (const struct verb *const *verb = noun->verbs; *verb; verb++)
        if (strcmp(last_word(*verb), word) == 0)
            return *verb;
    return NULL;
}

const char *verb_noun_nearest(const struct verb *noun, const char *word)
{
    const char *names[NOUN_VERBS_MAX];
    size_t count = 0;
    for (; noun->verbs[count] && count < NOUN_VERBS_MAX; count++)
        names[count] = last_word(noun->verbs[count]);
    return text_nearest(word, names, count);
}

void verb_noun_overview(const struct verb *noun, struct text *out)
{
    text_addf(out, "rondoctl %s - %s\n\nUsage: rondoctl %s VERB [OPTIONS] [OPERANDS]\n\nVerbs:\n",
              noun->name, noun->summary, noun->name);
    for (const struct verb *const *verb = noun->verbs; *verb; verb++)
        text_addf(out, "  %-12s %s\n", last_word(*verb), (*verb)->summary);
    text_addf(out, "\nExamples:\n%s", noun->examples);
    text_addf(out, "\n`rondoctl %s VERB --help` shows options and examples.\n", noun->name);
}

static int overview(const struct verb *noun, FILE *stream)
{
    struct text out;
    text_init(&out, 0);
    verb_noun_overview(noun, &out);
    fputs(text_get(&out), stream);
    text_fini(&out);
    return stream == stdout ? VERB_OK : VERB_USAGE;
}

static int unknown(const struct verb *noun, const char *word)
{
    const char *near = verb_noun_nearest(noun, word);
    output_error("%s: '%s' is no verb of it%s%s%s", noun->name, word,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    fprintf(stderr, "Try: rondoctl %s --help\n", noun->name);
    return VERB_USAGE;
}

int verb_noun_run(const struct verb *noun, int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    if (!word)
        return overview(noun, stderr);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return overview(noun, stdout);
    if (strcmp(word, "help") == 0) {
        const struct verb *about = argc > 2 ? verb_noun_find(noun, argv[2]) : NULL;
        char *help[] = {argv[0], (char[]){"--help"}, NULL};
        return about      ? verb_run(about, 2, help)
               : argc > 2 ? unknown(noun, argv[2])
                          : overview(noun, stdout);
    }
    const struct verb *verb = verb_noun_find(noun, word);
    return verb ? verb_run(verb, argc - 1, argv + 1) : unknown(noun, word);
}
