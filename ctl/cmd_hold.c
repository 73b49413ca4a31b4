/* cmd_hold.c - keep jobs from running, and release them. Loop thread. */
#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/job_change.h"
#include "ctl/job_state.h"

struct config {
    struct connect_flags connect;
};

static const struct option rows[] = {CONNECT_ROWS, {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

struct hold {
    bool release;
    Pb__HoldRequest request;
};

static const ProtobufCMessage *fill(void *arg, const char *request_id, int64_t job)
{
    struct hold *hold = arg;
    pb__hold_request__init(&hold->request);
    hold->request.request_id = (char *)(uintptr_t)request_id;
    hold->request.has_job = hold->request.has_release = 1;
    hold->request.job = job;
    hold->request.release = hold->release;
    return &hold->request.base;
}

/* HELD already; or not held, and with no end or hold that is still to come. */
static bool is_so(const void *arg, const Pb__Job *job)
{
    const struct hold *hold = arg;
    Pb__Job__State state = job->state;
    if (!hold->release)
        return state == PB__JOB__STATE__HELD;
    bool stops = state == PB__JOB__STATE__SAVING || state == PB__JOB__STATE__STOPPING;
    return !job_state_ended(state) && state != PB__JOB__STATE__HELD &&
           (!stops || job->next == PB__JOB__NEXT__REQUEUE);
}

static int change(const struct config *config, bool release, int argc, char **argv)
{
    struct hold hold = {.release = release};
    struct job_change what = {"Hold", release ? "released" : "being held", fill, &hold, is_so};
    int64_t *ids = NULL;
    size_t count;
    int code = VERB_USAGE;
    struct connect *connect = connect_open(&config->connect, &code);
    if (!connect)
        return code;
    code = job_change_run(connect, config->connect.output, &what, argc, argv, &ids, &count);
    mem_free(ids);
    connect_close(connect);
    return code;
}

static int run_hold(const void *config, int argc, char **argv)
{
    return change(config, false, argc, argv);
}

static int run_release(const void *config, int argc, char **argv)
{
    return change(config, true, argc, argv);
}

const struct verb cmd_hold = {.name = "hold",
                              .args = "JOB...",
                              .summary = "Keep jobs from running; those that run are stopped and "
                                         "wait.",
                              .examples = "  rondoctl hold 7\n",
                              .rows = rows,
                              .config_size = sizeof(struct config),
                              .operands_min = 1,
                              .operands_max = -1,
                              .run = run_hold};

const struct verb cmd_release = {.name = "release",
                                 .args = "JOB...",
                                 .summary = "Let held jobs run.",
                                 .examples = "  rondoctl release 7\n",
                                 .rows = rows,
                                 .config_size = sizeof(struct config),
                                 .operands_min = 1,
                                 .operands_max = -1,
                                 .run = run_release};
