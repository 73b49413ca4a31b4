#include "ctl/progress.h"
#include "base/mem.h"
#include "ctl/curve.h"
#include "ctl/event_line.h"
#include "ctl/job_state.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { POLL_US = 500000, POLL_CALL_MS = 10000, REOPEN_US = 300000, LINE_MS = 5000 };

struct follow {
    struct connect *connect;
    int64_t job;
    struct rpc_stream *stream; /* NULL while none is open */
    struct loop_timer *reopen, *poll;
    int64_t seq; /* resume token: of the last event seen */
    int64_t said_ms;
    char *said; /* the last line of numbers */
    uint32_t said_attempt;
    double loss;
    bool has_loss, tty, colour, line_shown;
    Pb__Job *last;      /* newest row of the job */
    bool ended_polled;  /* seen ended by asking; the watch gets one more turn to tell why */
    bool ended, failed; /* leave the loop */
    bool calling;
    struct error err;
};

void progress_line(const Pb__Job *job, const char *metric, double value, bool has_value,
                   struct text *out)
{
    bool waits = job->state == PB__JOB__STATE__QUEUED || job->state == PB__JOB__STATE__HELD;
    const char *why = job_state_text(job);
    if (waits && *why) {
        text_addf(out, "%s  %s%s", job_state_name(job->state),
                  strncmp(why, "waits ", 6) == 0 ? "" : "waits: ", why);
        return;
    }
    text_addf(out, "%s", job_state_name(job->state));
    if (job->attempt > 1)
        text_addf(out, "  attempt %u", job->attempt);
    text_addf(out, "  step %" PRId64, job->step);
    if (job->samples > 0)
        text_addf(out, "  samples %" PRId64, job->samples);
    if (has_value)
        text_addf(out, "  %s %.5g", metric, value);
    if (job->restarts_used > 0)
        text_addf(out, "  restarts %u", job->restarts_used);
}

static void erase_line(struct follow *follow)
{
    if (follow->line_shown)
        fputs("\r\x1b[K", stdout);
    follow->line_shown = false;
}

static void put_line(struct follow *follow, const char *line)
{
    char fitted[1600];
    erase_line(follow);
    if (follow->tty) {
        term_fit(line, term_columns(STDOUT_FILENO) - 1, fitted, sizeof fitted);
        fputs(fitted, stdout);
        follow->line_shown = true;
    } else {
        output_text("", line);
    }
    fflush(stdout);
}

/* Without a terminal: only what differs from the last line, and not too often within an attempt. */
static void show_numbers(struct follow *follow)
{
    struct text line;
    int64_t now = connect_now_ms(follow->connect);
    const Pb__Job *job = follow->last;
    if (!job || job_state_ended(job->state) || follow->ended)
        return;
    text_init(&line, 0);
    progress_line(job, "loss", follow->loss, follow->has_loss, &line);
    bool waited = now - follow->said_ms >= LINE_MS || follow->said_attempt != job->attempt;
    bool fresh = !follow->said || (strcmp(follow->said, text_get(&line)) != 0 && waited);
    if (follow->tty || fresh) {
        put_line(follow, text_get(&line));
        mem_free(follow->said);
        follow->said = text_take(&line);
        follow->said_ms = now;
        follow->said_attempt = job->attempt;
    }
    text_fini(&line);
}

static void leave(struct follow *follow)
{
    loop_uv_stop(connect_loop(follow->connect));
}

static void keep_job(struct follow *follow, const Pb__Job *job)
{
    Pb__Job *old = follow->last;
    if (old && old->version > job->version)
        return;
    follow->last = (Pb__Job *)message_copy(&job->base);
    if (old && old->attempt == job->attempt && old->step > job->step) {
        follow->last->step = old->step; /* rows of a watch may be behind the live numbers */
        follow->last->samples = old->samples;
    }
    if (old && old->attempt != job->attempt)
        follow->has_loss = false; /* it was the last attempt's */
    if (old)
        protobuf_c_message_free_unpacked(&old->base, NULL);
}

static void say_event(struct follow *follow, const Pb__Event *event)
{
    struct event_line_options options = {.colour = follow->colour};
    struct text line;
    if (!event_line_is_news(event))
        return;
    text_init(&line, 0);
    event_line(event, &options, &line);
    erase_line(follow);
    fputs(text_get(&line), stdout);
    fflush(stdout);
    text_fini(&line);
}

/* --- watching events */

static void watch_message(void *arg, const ProtobufCMessage *message)
{
    struct follow *follow = arg;
    const Pb__WatchReply *reply = (const Pb__WatchReply *)message;
    if (reply->event && reply->event->seq > follow->seq) {
        follow->seq = reply->event->seq;
        say_event(follow, reply->event);
    }
    if (reply->job)
        keep_job(follow, reply->job);
    /* The row is the newest one: it may be ahead of the events that are still coming. */
    bool level =
        reply->caught_up || (follow->last && reply->event && reply->event->to &&
                             strcmp(reply->event->to, job_state_name(follow->last->state)) == 0);
    if (level && reply->event && job_state_ended(follow->last->state)) {
        follow->ended = true;
        leave(follow);
    }
    if (level)
        show_numbers(follow);
}

static void watch_closed(void *arg, enum status st, const char *text)
{
    struct follow *follow = arg;
    follow->stream = NULL;
    if (follow->ended || follow->failed) { /* follow_fini waits for this */
        leave(follow);
        return;
    }
    bool refused = st == STATUS_NOT_FOUND || st == STATUS_DENIED || st == STATUS_UNAUTHENTICATED ||
                   st == STATUS_UNIMPLEMENTED || st == STATUS_INVALID;
    if (refused) {
        follow->failed = true;
        error_set(&follow->err, st, "%s", text ? text : "");
        leave(follow);
        return;
    }
    if (st == STATUS_OUT_OF_RANGE) /* events behind the token are gone: take what is kept */
        follow->seq = -1;
    loop_timer_set(follow->reopen, REOPEN_US);
}

static void watch_open(void *arg)
{
    static const struct rpc_stream_events events = {.message = watch_message,
                                                    .closed = watch_closed};
    struct follow *follow = arg;
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;
    request.has_after_seq = request.has_job = request.has_jobs = request.jobs = 1;
    request.after_seq = follow->seq;
    request.job = follow->job;
    follow->stream = rpc_client_stream(connect_client(follow->connect), &pb__control__descriptor,
                                       "Watch", 0, &events, follow);
    rpc_stream_send(follow->stream, &request.base);
    rpc_stream_end_sending(follow->stream);
}

/* --- asking for numbers */

static void poll_again(struct follow *follow)
{
    follow->calling = false;
    if (follow->ended || follow->failed)
        leave(follow);
    else
        loop_timer_set(follow->poll, POLL_US);
}

static void metrics_done(void *arg, enum status st, const struct error *err,
                         const ProtobufCMessage *message)
{
    struct follow *follow = arg;
    const Pb__MetricsReply *reply = (const Pb__MetricsReply *)message;
    (void)err;
    for (size_t i = 0; st == STATUS_OK && i < reply->n_series; i++) {
        size_t points = curve_points(reply->series[i]);
        if (points == 0)
            continue;
        follow->loss = curve_value(reply->series[i], points - 1);
        follow->has_loss = true;
    }
    show_numbers(follow);
    poll_again(follow);
}

static void ask_loss(struct follow *follow)
{
    Pb__MetricsRequest request = PB__METRICS_REQUEST__INIT;
    char *names[] = {(char[]){"loss"}};
    request.has_job = request.has_after_step = 1;
    request.job = follow->job;
    request.names = names;
    request.n_names = 1;
    int64_t from = follow->last ? follow->last->step - 50 : -1;
    request.after_step = from > -1 ? from : -1;
    rpc_client_call(connect_client(follow->connect), &pb__control__descriptor, "Metrics",
                    &request.base, POLL_CALL_MS, metrics_done, follow);
}

static void job_done(void *arg, enum status st, const struct error *err,
                     const ProtobufCMessage *message)
{
    struct follow *follow = arg;
    const Pb__ShowJobReply *reply = (const Pb__ShowJobReply *)message;
    (void)err;
    if (st != STATUS_OK || !reply->job) {
        poll_again(follow);
        return;
    }
    keep_job(follow, reply->job);
    if (!job_state_ended(follow->last->state)) {
        ask_loss(follow);
        return;
    }
    if (follow->ended_polled) {
        follow->ended = true;
        leave(follow);
    }
    follow->ended_polled = true;
    poll_again(follow);
}

static void poll_job(void *arg)
{
    struct follow *follow = arg;
    Pb__ShowJobRequest request = PB__SHOW_JOB_REQUEST__INIT;
    request.has_job = 1;
    request.job = follow->job;
    follow->calling = true;
    rpc_client_call(connect_client(follow->connect), &pb__control__descriptor, "ShowJob",
                    &request.base, POLL_CALL_MS, job_done, follow);
}

/* --- the whole */

/* The last points may be stored after the end was told. */
static void look_again(struct follow *follow)
{
    Pb__ShowJobRequest request = PB__SHOW_JOB_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.has_job = 1;
    request.job = follow->job;
    if (connect_call(follow->connect, "ShowJob", &request.base, &reply, NULL) != STATUS_OK)
        return;
    const Pb__ShowJobReply *show = (const Pb__ShowJobReply *)reply;
    if (show->job && job_state_ended(show->job->state))
        keep_job(follow, show->job);
    protobuf_c_message_free_unpacked(reply, NULL);
}

static void say_end(struct follow *follow)
{
    const Pb__Job *job = follow->last;
    char took[32] = "";
    const char *state = job_state_name(job->state), *why = job_state_text(job);
    if (job->ended_us > job->submitted_us && job->submitted_us > 0)
        text_duration_ms((uint64_t)(job->ended_us - job->submitted_us) / 1000, took, sizeof took);
    erase_line(follow);
    curve_show(follow->connect, follow->job, "loss");
    printf("job %" PRId64 " %s%s%s after %s, %" PRId64 " steps, %u of %u restarts%s", follow->job,
           term_code(follow->colour, term_state_paint(state)), state,
           term_code(follow->colour, TERM_PLAIN), took, job->step, job->restarts_used,
           job->spec && job->spec->restart ? job->spec->restart->budget : 0, *why ? ": " : "");
    output_text("", *why ? why : "");
    if (!*why)
        printf("\n");
    if (job->first_failure && job->first_failure->traceback)
        output_text("  ", job->first_failure->traceback);
    if (job->state != PB__JOB__STATE__SUCCEEDED)
        printf("more: rondoctl show %" PRId64 ", rondoctl logs %" PRId64 "\n", follow->job,
               follow->job);
}

static void follow_fini(struct follow *follow)
{
    follow->ended = true;
    if (follow->stream)
        rpc_stream_cancel(follow->stream);
    while (follow->stream || follow->calling)
        loop_uv_run(connect_loop(follow->connect));
    loop_timer_destroy(follow->reopen);
    loop_timer_destroy(follow->poll);
    mem_free(follow->said);
}

int progress_follow(struct connect *connect, int64_t job)
{
    struct follow follow = {.connect = connect,
                            .job = job,
                            .seq = -1,
                            .tty = term_is_tty(STDOUT_FILENO),
                            .colour = term_has_colour(STDOUT_FILENO)};
    int code;
    follow.reopen = loop_timer_create(connect_loop(connect), watch_open, &follow);
    follow.poll = loop_timer_create(connect_loop(connect), poll_job, &follow);
    loop_timer_set(follow.reopen, 0);
    loop_timer_set(follow.poll, POLL_US);
    while (!follow.ended && !follow.failed)
        loop_uv_run(connect_loop(connect));
    bool failed = follow.failed;
    follow_fini(&follow);
    if (failed) {
        code = connect_fail(connect, follow.err.code, follow.err.text);
    } else {
        int64_t before;
        unsigned looks = 0;
        do { /* until they stand still */
            before = follow.last->step;
            connect_pause(2);
            look_again(&follow);
        } while (follow.last->step != before && ++looks < 5);
        say_end(&follow);
        code = follow.last->state == PB__JOB__STATE__SUCCEEDED ? VERB_OK : VERB_NEGATIVE;
    }
    if (follow.last)
        protobuf_c_message_free_unpacked(&follow.last->base, NULL);
    return code;
}
