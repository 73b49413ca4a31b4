/* submission.h - many job files on their way to the daemon.
 *
 * Loop thread. All files are read, checked and packed before anything is sent: a problem in one
 * means that nothing is submitted. Each job has a request id of its own, kept over every retry. */
#pragma once
#include "ctl/connect.h"

struct submission;
struct submission_options {
    const char *const *sets;
    size_t sets_count;
    bool hold;
};

/* Borrows the names of the files. Problems go to stderr, a line each. NULL when there was any;
 * *exit_code says which kind. */
struct submission *submission_load(char *const *files, size_t count,
                                   const struct submission_options *options, int *exit_code);
void submission_destroy(struct submission *submission); /* NULL is fine */
size_t submission_count(const struct submission *submission);
const Pb__JobSpec *submission_spec(const struct submission *submission, size_t i);
const char *submission_file(const struct submission *submission, size_t i);

/* Once a submission. Code first, then jobs, many in a message. Fills *reply with a result for each
 * file, in their order; the exit code is the worst of them. Failures are said on stderr. */
int submission_send(struct submission *submission, struct connect *connect,
                    Pb__SubmitManyReply *reply);
/* Lets the daemon check everything and store nothing. *reply as of submission_send, without ids. */
int submission_try(struct submission *submission, struct connect *connect,
                   Pb__SubmitManyReply *reply);
/* Says on stderr which of the accepted ones, if they are few, no node could ever hold. */
void submission_warn(struct submission *submission, struct connect *connect);
