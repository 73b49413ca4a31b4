/* cmd_cancel.c - end jobs. Loop thread. */
#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/job_change.h"
#include "ctl/progress.h"

struct config {
    struct connect_flags connect;
    char *why;
    bool now, wait;
};
#define AT(member) offsetof(struct config, member)

static const struct option rows[] = {
    CONNECT_ROWS,
    {"why", OPT_TEXT, AT(why), NULL, 0, 200, "Said in the job's reason and events."},
    {"now", OPT_BOOL, AT(now), "false", 0, 0, "Kill at once: no grace period, no last save."},
    {"wait", OPT_BOOL, AT(wait), "false", 0, 0, "Wait until the jobs have ended."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

struct cancel {
    const struct config *config;
    Pb__CancelRequest request;
};

static const ProtobufCMessage *fill(void *arg, const char *request_id, int64_t job)
{
    struct cancel *cancel = arg;
    pb__cancel_request__init(&cancel->request);
    cancel->request.request_id = (char *)(uintptr_t)request_id;
    cancel->request.has_job = cancel->request.has_now = 1;
    cancel->request.job = job;
    cancel->request.now = cancel->config->now;
    cancel->request.why = *cancel->config->why ? cancel->config->why : NULL;
    return &cancel->request.base;
}

static int run(const void *arg, int argc, char **argv)
{
    struct cancel cancel = {.config = arg};
    struct job_change change = {"Cancel", "being cancelled", fill, &cancel, NULL};
    int64_t *ids = NULL;
    size_t count;
    int code = VERB_USAGE;
    struct connect *connect = connect_open(&cancel.config->connect, &code);
    if (!connect)
        return code;
    code =
        job_change_run(connect, cancel.config->connect.output, &change, argc, argv, &ids, &count);
    if (cancel.config->wait && count > 0 && code != VERB_UNREACHED) {
        int waited = progress_wait(connect, ids, count, false);
        if (waited != VERB_NEGATIVE && waited > code) /* CANCELLED is what was asked for */
            code = waited;
    }
    mem_free(ids);
    connect_close(connect);
    return code;
}

const struct verb cmd_cancel = {.name = "cancel",
                                .args = "JOB...",
                                .summary = "End jobs: ask to stop, then kill after the grace "
                                           "period.",
                                .examples = "  rondoctl cancel 7\n"
                                            "  rondoctl cancel charlm --now --why 'wrong data'\n"
                                            "  rondoctl cancel 7 8 9 --wait\n",
                                .rows = rows,
                                .config_size = sizeof(struct config),
                                .operands_min = 1,
                                .operands_max = -1,
                                .run = run};
