/* fsck_vault.h - one vault's directory checked for itself, without a daemon.
 *
 * Blocking. Finds what the directory alone tells: a checkpoint that is not whole, and leftovers.
 * Whether an unfinished save goes on only the daemon knows: it is told, and stays. */
#pragma once
#include "ctl/fsck_report.h"

struct fsck_vault_options {
    const char *vault;
    int64_t job; /* 0: all */
    bool repair; /* removes what a deletion, a copy or an export left, no more */
    bool deep;   /* reads every byte */
};
/* The exit code; VERB_OK: the report has its summary. */
int fsck_vault_run(const struct fsck_vault_options *options, struct fsck_report *report);
