/* verb.h - the verbs of rondoctl: one row each; a noun's row has verbs of its own.
 *
 * Loop thread. A verb's rows begin with CONNECT_ROWS, so that its config begins with struct
 * connect_flags. run gets the operands; what it returns is the exit code (enum verb_exit). */
#pragma once
#include "base/option.h"
#include <stddef.h>

enum verb_exit {
    VERB_OK = 0,
    VERB_NEGATIVE = 1,  /* a job failed, the cluster is not ready, or the like */
    VERB_USAGE = 2,     /* the command line or a file is wrong; nothing was sent */
    VERB_UNREACHED = 3, /* the daemon could not be reached within --timeout */
    VERB_REFUSED = 4,   /* the daemon said no: not found, not allowed, wrong state */
    VERB_BROKEN = 5     /* something failed that should not */
};

struct verb {
    const char *name;     /* of a noun's verb with the noun: "checkpoint list" */
    const char *args;     /* operands as --help shows them */
    const char *summary;  /* one sentence */
    const char *examples; /* lines, two spaces before each */
    const struct option *rows;
    size_t config_size;
    int operands_min, operands_max; /* -1: any number */
    int (*run)(const void *config, int argc, char **argv);
    const struct verb *const *verbs; /* a noun: they end with NULL; of the rest only the name, the
                                        summary and the examples count */
};

/* Ends with NULL. */
extern const struct verb *const verb_table[];
const struct verb *verb_find(const char *name);
/* The nearest verb's name, or NULL. */
const char *verb_nearest(const char *name);
/* What to type here for a word that people know from Slurm, kubectl or a shell; NULL. */
const char *verb_elsewhere(const char *name);
/* Parses the verb's flags and runs it. argv[0] is the verb. */
int verb_run(const struct verb *verb, int argc, char **argv);
/* What `rondoctl --help` prints. */
void verb_overview(struct text *out);

/* A noun's verb by its last word, or NULL; and the nearest such word. */
const struct verb *verb_noun_find(const struct verb *noun, const char *word);
const char *verb_noun_nearest(const struct verb *noun, const char *word);
/* argv[0] is the noun. */
int verb_noun_run(const struct verb *noun, int argc, char **argv);
/* What `rondoctl NOUN --help` prints. */
void verb_noun_overview(const struct verb *noun, struct text *out);
