#include "ctl/verb.h"
#include "base/mem.h"
#include "ctl/args.h"
#include "ctl/output.h"
#include "proto/text/problem_list.h"
#include <stdio.h>
#include <string.h>

enum { VERBS_MAX = 64 };

const struct verb *verb_find(const char *name)
{
    for (const struct verb *const *verb = verb_table; *verb; verb++)
        if (strcmp((*verb)->name, name) == 0)
            return *verb;
    return NULL;
}

const char *verb_nearest(const char *name)
{
    const char *names[VERBS_MAX];
    size_t count = 0;
    for (; verb_table[count] && count < VERBS_MAX; count++)
        names[count] = verb_table[count]->name;
    return text_nearest(name, names, count);
}

const char *verb_elsewhere(const char *name)
{
    static const struct {
        const char *words, *here; /* words: each between spaces */
    } rows[] = {
        {" sbatch srun salloc qsub bsub apply create run start launch ", "submit FILE"},
        {" squeue qstat bjobs ps ls list get top queue ", "jobs (and nodes, checkpoints)"},
        {" scancel qdel bkill kill delete rm stop terminate abort ", "cancel JOB"},
        {" sinfo pestat ", "nodes"},
        {" scontrol sacct describe info inspect why explain ", "show JOB"},
        {" drain ", "cordon NODE, then hold or cancel the jobs that run there"},
        {" undrain resume-node ", "uncordon NODE"},
        {" suspend pause requeue ", "hold JOB (saves, then stops); release JOB goes on"},
        {" resume unsuspend continue ", "release JOB"},
        {" tail cat attach output ", "logs JOB"},
        {" watch history ", "events -f"},
        {" plot loss stats curve ", "metrics JOB --plot"},
        {" check repair scrub e2fsck doctor ", "fsck"},
        {" ping health ready healthz readyz ", "status"},
    };
    SCOPED_TEXT char *word = mem_printf(" %.40s ", name);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (!strchr(name, ' ') && strstr(rows[i].words, word))
            return rows[i].here;
    return NULL;
}

/* The examples with the letters that this verb's options have. */
static char *page_examples(const struct verb *verb)
{
    struct text out;
    text_init(&out, 0);
    text_add(&out, verb->examples);
    bool any = false;
    for (const struct option *row = verb->rows; row->name; row++) {
        char letter = args_letter(row->name);
        if (letter)
            text_addf(&out, "%s-%c --%s", any ? ", " : "\nShort: ", letter, row->name);
        any = any || letter;
    }
    if (any)
        text_add(&out, "\n");
    return text_take(&out);
}

static int usage_error(const struct verb *verb, const char *problems)
{
    for (const char *line = problems; *line;) {
        size_t len = strcspn(line, "\n");
        output_error("%s: %.*s", verb->name, (int)len, line);
        line += len + (line[len] == '\n');
    }
    fprintf(stderr, "Try: rondoctl %s --help\n", verb->name);
    return VERB_USAGE;
}

static int check_operands(const struct verb *verb, int count, char **operands)
{
    char quote[PROBLEM_QUOTE_SIZE];
    SCOPED_TEXT char *problem = NULL;
    if (count < verb->operands_min)
        problem = mem_printf("%s missing: rondoctl %s %s", count ? "operands are" : "an operand is",
                             verb->name, verb->args);
    else if (verb->operands_max == 0 && count > 0)
        problem = mem_printf("takes no operand such as '%s'",
                             problem_list_quote(operands[0], strlen(operands[0]), quote));
    else if (verb->operands_max >= 0 && count > verb->operands_max)
        problem = mem_printf("'%s' is one operand too many: rondoctl %s %s",
                             problem_list_quote(operands[verb->operands_max],
                                                strlen(operands[verb->operands_max]), quote),
                             verb->name, verb->args);
    return problem ? usage_error(verb, problem) : VERB_OK;
}

static int run_arranged(const struct verb *verb, int argc, char **argv)
{
    SCOPED_TEXT char *program = mem_printf("rondoctl %s", verb->name);
    SCOPED_TEXT char *usage = mem_printf("rondoctl %s [OPTIONS] %s", verb->name, verb->args);
    SCOPED_TEXT char *examples = page_examples(verb);
    struct option_page page = {program, verb->summary, usage, examples, verb->rows};
    struct text problems;
    SCOPED_TEXT char *config = mem_alloc(verb->config_size);
    int at, code;
    text_init(&problems, 0);
    option_defaults(verb->rows, config);
    if (option_flags(&page, config, argc, argv, &at, &problems) != STATUS_OK)
        code = usage_error(verb, text_get(&problems));
    else
        code = check_operands(verb, argc - at, argv + at);
    if (code == VERB_OK)
        code = verb->run(config, argc - at, argv + at);
    option_fini(verb->rows, config);
    text_fini(&problems);
    return code;
}

int verb_run(const struct verb *verb, int argc, char **argv)
{
    struct text problems;
    char **arranged;
    int count, code;
    if (verb->verbs)
        return verb_noun_run(verb, argc, argv);
    text_init(&problems, 0);
    if (args_arrange(verb->rows, argc, argv, &arranged, &count, &problems)) {
        code = run_arranged(verb, count, arranged);
        mem_free(arranged);
    } else {
        code = usage_error(verb, text_get(&problems));
    }
    text_fini(&problems);
    return code;
}

void verb_overview(struct text *out)
{
    text_add(out, "rondoctl - talks to a Rondo daemon\n\n"
                  "Usage: rondoctl VERB [OPTIONS] [OPERANDS]\n\nVerbs:\n");
    for (const struct verb *const *verb = verb_table; *verb; verb++)
        text_addf(out, "  %-12s %s\n", (*verb)->name, (*verb)->summary);
    text_add(out,
             "\n`rondoctl VERB --help` shows options and examples. A JOB is an id, a name, or the "
             "start of\none name. -o json prints the daemon's reply messages.\n\n"
             "Exit codes: 0 done, 1 a job failed or the answer is no, 2 wrong usage or job file,\n"
             "3 daemon not reached, 4 refused or not found, 5 something broke.\n\n"
             "Environment: RONDO_CONTEXT, RONDO_SERVER, RONDO_CERT, RONDO_KEY, RONDO_CA,\n"
             "RONDO_TIMEOUT, NO_COLOR. Without any: ~/.rondo/ctl, then ./rondo-dev/ctl.\n");
}
