/* cmd_logs.c - what a worker wrote, byte for byte. Loop thread.
 *
 * Following goes on over restarts of daemon and agent by offset, and from attempt to attempt. */
#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/job_arg.h"
#include "ctl/job_state.h"
#include "ctl/output.h"
#include <stdio.h>
#include <string.h>

struct config {
    struct connect_flags connect;
    char *role;
    uint32_t rank, attempt;
    int64_t tail;
    bool is_stderr, follow;
};
#define AT(member) offsetof(struct config, member)

static const struct option rows[] = {
    CONNECT_ROWS,
    {"role", OPT_TEXT, AT(role), NULL, 0, 63, "The worker's role (default: the first)."},
    {"rank", OPT_U32, AT(rank), "0", 0, 99999, "The worker's rank in its role."},
    {"attempt", OPT_U32, AT(attempt), "0", 0, UINT32_MAX, "Which attempt; 0: the current one."},
    {"stderr", OPT_BOOL, AT(is_stderr), "false", 0, 0, "What it wrote to stderr, not stdout."},
    {"follow", OPT_BOOL, AT(follow), "false", 0, 0,
     "Go on with new output, and with the next attempt, until the job ends."},
    {"tail", OPT_I64, AT(tail), "0", 0, INT64_MAX, "Only the last so many bytes; 0: all."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

struct reading {
    const struct config *config;
    struct connect *connect;
    int64_t job, offset; /* offset: of the next byte wanted; negative: from the end */
    uint32_t attempt;
    bool closed, broken; /* the log is complete; stdout takes no more */
    bool any;            /* something was written */
    bool waits, said;    /* for its first attempt; that was told */
};

static bool take_piece(void *arg, const ProtobufCMessage *message)
{
    struct reading *reading = arg;
    const Pb__LogsReply *reply = (const Pb__LogsReply *)message;
    if (reply->data.len > 0) {
        reading->any = true;
        reading->broken = fwrite(reply->data.data, 1, reply->data.len, stdout) != reply->data.len ||
                          fflush(stdout) != 0;
        reading->offset = reply->offset + (int64_t)reply->data.len;
    } else if (reply->has_offset && reading->offset < 0) {
        reading->offset = reply->offset;
    }
    reading->closed = reading->closed || reply->closed;
    return !reading->broken;
}

static enum status read_once(struct reading *reading, struct error *err)
{
    Pb__LogsRequest request = PB__LOGS_REQUEST__INIT;
    request.has_job = request.has_rank = request.has_attempt = request.has_offset = 1;
    request.has_follow = request.has_stderr_ = 1;
    request.job = reading->job;
    request.role = *reading->config->role ? reading->config->role : NULL;
    request.rank = reading->config->rank;
    request.attempt = reading->attempt;
    request.stderr_ = reading->config->is_stderr;
    request.offset = reading->offset;
    request.follow = reading->config->follow;
    return connect_stream(reading->connect, "Logs", &request.base, take_piece, reading, err);
}

/* Once. */
static void say_waits(struct reading *reading, const Pb__Job *job)
{
    const char *why = job_state_text(job);
    if (reading->said)
        return;
    reading->said = true;
    fflush(stdout);
    output_error("job %lld waits: %s", (long long)reading->job,
                 *why ? why : job_state_name(job->state));
}

/* The job as it is now: whether it has ended, and its attempt. */
static int look(struct reading *reading, bool *ended, uint32_t *attempt)
{
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    Pb__ListJobsReply *reply;
    filter.ids = &reading->job;
    filter.n_ids = 1;
    request.filter = &filter;
    request.has_brief = request.brief = 1;
    int code =
        connect_ask(reading->connect, "ListJobs", &request.base, (ProtobufCMessage **)&reply);
    if (code != VERB_OK)
        return code;
    if (reply->n_jobs == 0) {
        output_error("no job %lld", (long long)reading->job);
        code = VERB_REFUSED;
    } else {
        *ended = job_state_ended(reply->jobs[0]->state);
        *attempt = reply->jobs[0]->attempt;
        if (reading->waits && !*attempt && !*ended)
            say_waits(reading, reply->jobs[0]);
    }
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return code;
}

/* Not yet there: an attempt that is being started, a node that is away for a moment. */
static bool may_come(const struct config *config, enum status st)
{
    return connect_may_retry(st) ||
           (config->follow && (st == STATUS_NOT_FOUND || st == STATUS_PRECONDITION));
}

/* One attempt's log to its end. */
static int read_attempt(struct reading *reading)
{
    int64_t end = connect_now_ms(reading->connect) + connect_timeout_ms(reading->connect);
    for (unsigned tries = 0;; tries++) {
        struct error err = {0};
        int64_t before = reading->offset;
        enum status st = read_once(reading, &err);
        if (reading->broken)
            return VERB_BROKEN;
        if (st == STATUS_OK && (reading->closed || !reading->config->follow))
            return VERB_OK;
        if (reading->offset != before || st == STATUS_OK) {
            tries = 0;
            end = connect_now_ms(reading->connect) + connect_timeout_ms(reading->connect);
        }
        bool ended = false;
        uint32_t attempt = reading->attempt;
        int code = look(reading, &ended, &attempt);
        if (code != VERB_OK)
            return code;
        bool over = ended || attempt != reading->attempt;
        if (st != STATUS_OK &&
            (!may_come(reading->config, st) || (over && !connect_may_retry(st)) ||
             (!reading->config->follow && connect_now_ms(reading->connect) >= end) ||
             (over && connect_now_ms(reading->connect) >= end)))
            return connect_fail(reading->connect, st, err.text);
        if (connect_may_retry(st))
            connect_say_waiting(reading->connect, err.text);
        connect_pause(tries);
    }
}

/* Waits for a newer attempt. False: the job has ended, or the failure is in *code. */
static bool next_attempt(struct reading *reading, int *code)
{
    bool ended = false;
    uint32_t attempt = reading->attempt;
    for (unsigned tries = 0; !ended && attempt == reading->attempt; tries++) {
        *code = look(reading, &ended, &attempt);
        if (*code != VERB_OK)
            return false;
        if (!ended && attempt == reading->attempt)
            connect_pause(tries);
    }
    if (attempt == reading->attempt)
        return false;
    fflush(stdout);
    fprintf(stderr, "--- attempt %u ---\n", attempt);
    reading->attempt = attempt;
    reading->offset = 0;
    reading->closed = false;
    return true;
}

static int read_all(struct reading *reading)
{
    bool ended = false;
    if (reading->config->attempt == 0) {
        reading->waits = reading->config->follow;
        int code = look(reading, &ended, &reading->attempt);
        while (code == VERB_OK && reading->attempt == 0 && !ended && reading->config->follow) {
            connect_pause(2);
            code = look(reading, &ended, &reading->attempt);
        }
        if (code != VERB_OK)
            return code;
        if (reading->attempt == 0) {
            output_error("job %lld has not started yet; -f waits for it", (long long)reading->job);
            return VERB_REFUSED;
        }
    }
    int code = read_attempt(reading);
    while (code == VERB_OK && reading->config->follow && reading->config->attempt == 0 &&
           next_attempt(reading, &code))
        code = read_attempt(reading);
    return code;
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    int code = VERB_USAGE;
    (void)argc;
    struct connect *connect = connect_open(&config->connect, &code);
    if (!connect)
        return code;
    struct reading reading = {
        .config = config, .connect = connect, .attempt = config->attempt, .offset = -config->tail};
    code = job_arg_find(connect, argv[0], true, &reading.job);
    if (code == VERB_OK)
        code = read_all(&reading);
    if (code == VERB_OK && !reading.any && !config->follow)
        fprintf(stderr, "attempt %u: rank %u wrote nothing to %s (%s)\n", reading.attempt,
                (unsigned)config->rank, config->is_stderr ? "stderr" : "stdout",
                config->is_stderr ? "without --stderr: stdout" : "--stderr shows the other");
    connect_close(connect);
    return code;
}

const struct verb cmd_logs = {.name = "logs",
                              .args = "JOB",
                              .summary = "What a worker wrote, byte for byte.",
                              .examples = "  rondoctl logs 7\n"
                                          "  rondoctl logs charlm -f --rank 1\n"
                                          "  rondoctl logs 7 --stderr --attempt 2 --tail 4000\n",
                              .rows = rows,
                              .config_size = sizeof(struct config),
                              .operands_min = 1,
                              .operands_max = 1,
                              .run = run};
