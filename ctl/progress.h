/* progress.h - a job from now to its end, as people want to see it.
 *
 * Loop thread. Watches the job's events with a resume token and asks for its numbers each second;
 * both go on over restarts of the daemon, however long it is away. On a terminal the numbers are
 * one line that is rewritten; else lines, few enough to keep in a file. */
#pragma once
#include "ctl/connect.h"

/* Until the job has ended. VERB_OK: it SUCCEEDED; VERB_NEGATIVE: it did not; else the failure. */
int progress_follow(struct connect *connect, int64_t job);
/* The same without a word, for many jobs; results are said at the end where quiet is false. */
int progress_wait(struct connect *connect, const int64_t *jobs, size_t count, bool quiet);
/* The line of numbers: "step 120  samples 3,840  loss 2.314  restarts 1". Pure. */
void progress_line(const Pb__Job *job, const char *metric, double value, bool has_value,
                   struct text *out);
