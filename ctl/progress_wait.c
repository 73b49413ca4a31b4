/* progress_wait.c - many jobs until their ends, by asking. Loop thread. */
#include "base/mem.h"
#include "ctl/job_state.h"
#include "ctl/output.h"
#include "ctl/progress.h"
#include "ctl/verb.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { IDS_MAX = 1000, POLL_MS = 250 };

struct waiting {
    int64_t *left; /* ids that have not ended; the order does not matter */
    size_t count;
    bool quiet;
    int code;
};

static void drop(struct waiting *waiting, int64_t id)
{
    for (size_t i = 0; i < waiting->count; i++)
        if (waiting->left[i] == id) {
            waiting->left[i] = waiting->left[--waiting->count];
            return;
        }
}

static void take_ended(struct waiting *waiting, const Pb__Job *job)
{
    if (!job_state_ended(job->state))
        return;
    drop(waiting, job->id);
    if (job->state != PB__JOB__STATE__SUCCEEDED)
        waiting->code = VERB_NEGATIVE;
    if (waiting->quiet)
        return;
    printf("job %" PRId64 " %s", job->id, job_state_name(job->state));
    printf("%s", *job_state_text(job) ? ": " : "\n");
    output_text("", job_state_text(job));
    fflush(stdout);
}

/* Asks for some of those left, the next ones each time. */
static enum status ask(struct connect *connect, struct waiting *waiting, size_t *at,
                       struct error *err)
{
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    Pb__ListJobsReply *reply;
    if (*at >= waiting->count)
        *at = 0;
    filter.ids = waiting->left + *at;
    filter.n_ids = waiting->count - *at < IDS_MAX ? waiting->count - *at : IDS_MAX;
    request.filter = &filter;
    request.has_limit = request.has_brief = request.brief = 1;
    request.limit = IDS_MAX;
    *at += filter.n_ids;
    enum status st =
        connect_call(connect, "ListJobs", &request.base, (ProtobufCMessage **)&reply, err);
    if (st != STATUS_OK)
        return st;
    if (reply->n_jobs == 0 && filter.n_ids > 0)
        st = error_set(err, STATUS_NOT_FOUND, "job %" PRId64 " is not known (any more)",
                       filter.ids[0]);
    for (size_t i = 0; i < reply->n_jobs; i++)
        take_ended(waiting, reply->jobs[i]);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return st;
}

int progress_wait(struct connect *connect, const int64_t *jobs, size_t count, bool quiet)
{
    struct timespec pause = {0, POLL_MS * 1000000L};
    struct waiting waiting = {.left = mem_dup(jobs, count * sizeof *jobs),
                              .count = count,
                              .quiet = quiet,
                              .code = VERB_OK};
    struct error err = {0};
    size_t at = 0;
    while (waiting.count > 0) {
        enum status st = ask(connect, &waiting, &at, &err);
        if (st != STATUS_OK && !connect_may_retry(st)) { /* a restart is waited for, always */
            waiting.code = connect_fail(connect, st, err.text);
            break;
        }
        if (at >= waiting.count && waiting.count > 0)
            nanosleep(&pause, NULL);
    }
    mem_free(waiting.left);
    return waiting.code;
}
