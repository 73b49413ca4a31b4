/* job_arg.h - which job an operand means: its id, its exact name, or the start of one name.
 *
 * Loop thread; asks the daemon. */
#pragma once
#include "ctl/connect.h"

/* VERB_OK and *id, or the exit code, said on stderr. Where several jobs bear the name: the one that
 * has not ended; else, if newest_ok, the newest; else none. */
int job_arg_find(struct connect *connect, const char *word, bool newest_ok, int64_t *id);

/* For answers that are empty: says so when there is no such job. */
int job_arg_check(struct connect *connect, int64_t id);

/* The pure part. Jobs are newest first. 0: none; -1: several, *why says which. */
int64_t job_arg_choose(Pb__Job *const *jobs, size_t count, const char *word, bool newest_ok,
                       struct text *why);
