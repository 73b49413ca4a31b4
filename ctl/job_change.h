/* job_change.h - the same change asked for of each job named on the command line.
 *
 * Loop thread. Prints a line, or the reply, for each; the exit code is the worst of them. */
#pragma once
#include "ctl/connect.h"

struct job_change {
    const char *method; /* of Control; answers a JobReply */
    const char *done;   /* "job 7 is <done>, now STOPPING" */
    /* Fills the request for one job; it is packed before the next call. */
    const ProtobufCMessage *(*request)(void *arg, const char *request_id, int64_t job);
    void *arg;
    /* Is a job that refuses the change as wanted anyway? NULL: never. */
    bool (*is_so)(const void *arg, const Pb__Job *job);
};

/* *ids (count of them) are the jobs that were found and changed; free with mem_free. */
int job_change_run(struct connect *connect, const char *output, const struct job_change *change,
                   int argc, char **argv, int64_t **ids, size_t *count);
