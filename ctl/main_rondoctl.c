/* main_rondoctl.c - finds the verb and runs it. */
#include "base/text.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int overview(FILE *out)
{
    struct text text;
    text_init(&text, 0);
    verb_overview(&text);
    fputs(text_get(&text), out);
    text_fini(&text);
    return out == stdout ? VERB_OK : VERB_USAGE;
}

static int unknown(const char *word)
{
    const char *here = verb_elsewhere(word), *near = verb_nearest(word);
    if (here)
        output_error("'%s' is no verb; here it is: rondoctl %s", word, here);
    else
        output_error("'%s' is no verb%s%s%s", word, near ? "; did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
    fprintf(stderr, "Try: rondoctl --help\n");
    return VERB_USAGE;
}

static int run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (argc < 2)
        return overview(stderr);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return overview(stdout);
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        word = "version";
    if (strcmp(word, "help") == 0) {
        const struct verb *about = argc > 2 ? verb_find(argv[2]) : NULL;
        const struct verb *of =
            about && about->verbs && argc > 3 ? verb_noun_find(about, argv[3]) : NULL;
        char *help[] = {argv[0], (char[]){"--help"}, NULL};
        return about      ? verb_run(of ? of : about, 2, help)
               : argc > 2 ? unknown(argv[2])
                          : overview(stdout);
    }
    const struct verb *verb = verb_find(word);
    return verb ? verb_run(verb, argc - 1, argv + 1) : unknown(word);
}

int main(int argc, char **argv)
{
    /* One heap that grows in large steps: a short life with many threads spends a tenth of its time
     * on growing one for each. */
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_TOP_PAD, 4 << 20);
    signal(SIGPIPE, SIG_IGN); /* a closed reader is an error of fwrite, not a death */
    int code = run(argc, argv);
    if (!output_flush() && code == VERB_OK)
        code = VERB_BROKEN;
    return code;
}
