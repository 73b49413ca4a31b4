/* cmd_show.c - all that there is to know of one job. Loop thread. */
#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/event_line.h"
#include "ctl/job_arg.h"
#include "ctl/job_state.h"
#include "ctl/output.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EVENTS_SHOWN = 20, CHECKPOINTS_SHOWN = 10 };

struct config {
    struct connect_flags connect;
};

static const struct option rows[] = {CONNECT_ROWS, {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static const struct table_column worker_columns[] = {
    {"ROLE", TABLE_SHRINK}, {"RANK", TABLE_RIGHT},    {"NODE", TABLE_SHRINK},
    {"PID", TABLE_RIGHT},   {"STATE", TABLE_STATE},   {"EXIT", 0},
    {"STEP", TABLE_RIGHT},  {"SAMPLES", TABLE_RIGHT}, {"MESSAGE", TABLE_SHRINK}};
static const struct table_column attempt_columns[] = {{"ATTEMPT", TABLE_RIGHT},
                                                      {"STARTED", 0},
                                                      {"RAN", TABLE_RIGHT},
                                                      {"RESUMED FROM", 0},
                                                      {"END", TABLE_SHRINK}};
static const struct table_column checkpoint_columns[] = {
    {"CHECKPOINT", TABLE_RIGHT}, {"STEP", TABLE_RIGHT},    {"SAMPLES", TABLE_RIGHT},
    {"STATE", TABLE_STATE},      {"ATTEMPT", TABLE_RIGHT}, {"SIZE", TABLE_RIGHT}};

static void line(const char *label, const char *text)
{
    if (!text || !*text)
        return;
    printf("%-12s", label);
    output_text("", text);
}

static void exit_text(bool has_code, int code, bool has_signal, int signal, char *out, size_t cap)
{
    if (has_signal && signal != 0)
        snprintf(out, cap, "SIG%s", sigabbrev_np(signal) ? sigabbrev_np(signal) : "?");
    else if (has_code)
        snprintf(out, cap, "%d", code);
    else
        snprintf(out, cap, "-");
}

static void print_reason(const Pb__Job *job)
{
    SCOPED_TEXT char *why = mem_printf("%s%s%s", job_state_reason(job),
                                       *job_state_text(job) ? ": " : "", job_state_text(job));
    bool waits = job->state == PB__JOB__STATE__QUEUED || job->state == PB__JOB__STATE__HELD;
    line(waits ? "waits" : "reason", why);
    if (job->not_before_us > 0 && waits) {
        char at[32];
        output_time(job->not_before_us, at, sizeof at);
        line("not before", at);
    }
}

static void print_numbers(const Pb__Job *job)
{
    uint32_t budget = job->spec && job->spec->restart ? job->spec->restart->budget : 0;
    uint32_t left = budget > job->restarts_used ? budget - job->restarts_used : 0;
    char submitted[32], age[32], took[32] = "";
    output_time(job->submitted_us, submitted, sizeof submitted);
    output_age(job->submitted_us, age, sizeof age);
    printf("%-12s%s (%s ago)%s%s\n", "submitted", submitted, age, job->submitter ? " by " : "",
           job->submitter ? job->submitter : "");
    if (job->ended_us > 0 && job->started_us > 0) {
        text_duration_ms((uint64_t)(job->ended_us - job->started_us) / 1000, took, sizeof took);
        printf("%-12s%s\n", "ran", took);
    }
    printf("%-12s%" PRId64 "   samples %" PRId64 "\n", "step", job->step, job->samples);
    printf("%-12s%u used, %u left of %u\n", "restarts", job->restarts_used, left, budget);
    if (job->last_checkpoint > 0)
        printf("%-12s%" PRId64 "\n", "checkpoint", job->last_checkpoint);
}

static void print_head(const Pb__Job *job)
{
    bool colour = term_has_colour(STDOUT_FILENO);
    const char *state = job_state_name(job->state);
    printf("%-12s%" PRId64 "\n", "job", job->id);
    line("name", job_state_job_name(job));
    line("project", job->spec ? job->spec->project : "");
    printf("%-12s%s%s%s\n", "state", term_code(colour, term_state_paint(state)), state,
           term_code(colour, TERM_PLAIN));
    print_reason(job);
    print_numbers(job);
}

static void print_failure(const Pb__FirstFailure *failure)
{
    char how[32];
    if (!failure)
        return;
    exit_text(failure->has_exit_code, failure->exit_code, failure->has_signal, failure->signal, how,
              sizeof how);
    bool known = strcmp(how, "-") != 0;
    printf("\nfirst failure: attempt %u, ", failure->attempt);
    SCOPED_TEXT char *where =
        mem_printf("%s rank %u on %s, %s%s", failure->role ? failure->role : "?", failure->rank,
                   failure->node ? failure->node : "?", known ? "exit " : "without an exit status",
                   known ? how : "");
    output_text("", where);
    if (failure->message)
        output_text("  ", failure->message);
    if (failure->traceback)
        output_text("  ", failure->traceback);
}

/* What is not known is no 0. */
static void add_number(struct table *table, bool known, int64_t value)
{
    if (known)
        table_addf(table, "%" PRId64, value);
    else
        table_add(table, "-");
}

static void print_workers(const Pb__ShowJobReply *reply)
{
    struct table *table = table_create(worker_columns, COUNT_OF(worker_columns));
    for (size_t i = 0; i < reply->n_workers; i++) {
        const Pb__ShowWorker *worker = reply->workers[i];
        char how[32];
        exit_text(worker->has_exit_code, worker->exit_code, worker->has_signal, worker->signal, how,
                  sizeof how);
        table_add(table, worker->role);
        table_addf(table, "%u", worker->rank);
        table_add(table, worker->node);
        add_number(table, worker->pid > 0, worker->pid);
        table_add(table, worker->state);
        table_add(table, how);
        add_number(table, worker->has_step, worker->step);
        add_number(table, worker->has_samples, worker->samples);
        table_add(table, worker->message);
    }
    printf("\n");
    output_table_take(table);
}

static void add_attempt(struct table *table, const Pb__Attempt *attempt)
{
    char at[32], ran[32] = "-";
    int64_t end = attempt->ended_us;
    output_time(attempt->placed_us, at, sizeof at);
    if (attempt->placed_us > 0 && end > attempt->placed_us)
        text_duration_ms((uint64_t)(end - attempt->placed_us) / 1000, ran, sizeof ran);
    else if (end == 0)
        output_age(attempt->placed_us, ran, sizeof ran);
    table_addf(table, "%u", attempt->number);
    table_add(table, at);
    table_add(table, ran);
    if (attempt->resume_checkpoint > 0)
        table_addf(table, "checkpoint %" PRId64, attempt->resume_checkpoint);
    else
        table_add(table, "the start");
    if (attempt->end && attempt->end->has_code)
        table_addf(table, "%s%s%s",
                   enum_name(&pb__reason__code__descriptor, (int)attempt->end->code),
                   attempt->end->text ? ": " : "", attempt->end->text ? attempt->end->text : "");
    else
        table_add(table, "");
}

static void print_checkpoints(const Pb__ShowJobReply *reply)
{
    struct table *table = table_create(checkpoint_columns, COUNT_OF(checkpoint_columns));
    for (size_t i = 0; i < reply->n_checkpoints && i < CHECKPOINTS_SHOWN; i++) {
        const Pb__Checkpoint *checkpoint = reply->checkpoints[i];
        char size[32];
        text_bytes(checkpoint->bytes, size, sizeof size);
        table_addf(table, "%" PRId64, checkpoint->id);
        table_addf(table, "%" PRId64, checkpoint->step);
        table_addf(table, "%" PRId64, checkpoint->samples);
        table_add(table, enum_name(&pb__checkpoint__state__descriptor, (int)checkpoint->state));
        table_addf(table, "%u", checkpoint->attempt);
        table_add(table, size);
    }
    printf("\n");
    output_table_take(table);
}

/* The newest ones that are news, oldest first. */
static void print_events(const Pb__ShowJobReply *reply)
{
    struct event_line_options options = {.colour = term_has_colour(STDOUT_FILENO)};
    struct text out;
    size_t first = reply->n_events, shown = 0;
    while (first > 0 && shown < EVENTS_SHOWN)
        shown += event_line_is_news(reply->events[--first]);
    text_init(&out, 0);
    for (size_t i = first; i < reply->n_events; i++)
        if (event_line_is_news(reply->events[i]))
            event_line(reply->events[i], &options, &out);
    printf("\n%s", text_get(&out));
    text_fini(&out);
}

/* What an agent did by itself: no attempt of its own, but a part of the story. */
static void print_restarts(const Pb__ShowJobReply *reply)
{
    for (size_t i = 0; i < reply->n_attempts; i++)
        for (size_t j = 0; j < reply->attempts[i]->n_restarts; j++) {
            const Pb__RestartInPlace *restart = reply->attempts[i]->restarts[j];
            char how[32];
            exit_text(restart->has_exit_code, restart->exit_code, restart->has_signal,
                      restart->signal, how, sizeof how);
            SCOPED_TEXT char *told = mem_printf(
                "attempt %u went on as incarnation %u from checkpoint %" PRId64
                ", with no leader, after %s rank %u: exit %s",
                reply->attempts[i]->number, restart->incarnation + 1, restart->resume_checkpoint,
                restart->role ? restart->role : "?", restart->rank, how);
            output_text("", told);
        }
}

static void print(const Pb__ShowJobReply *reply)
{
    print_head(reply->job);
    print_failure(reply->job->first_failure);
    if (reply->n_workers > 0)
        print_workers(reply);
    if (reply->n_attempts > 0) {
        struct table *table = table_create(attempt_columns, COUNT_OF(attempt_columns));
        for (size_t i = 0; i < reply->n_attempts; i++)
            add_attempt(table, reply->attempts[i]);
        printf("\n");
        output_table_take(table);
        print_restarts(reply);
    }
    if (reply->n_checkpoints > 0)
        print_checkpoints(reply);
    if (reply->n_events > 0)
        print_events(reply);
}

static int show(struct connect *connect, const char *word, enum output_format format)
{
    Pb__ShowJobRequest request = PB__SHOW_JOB_REQUEST__INIT;
    Pb__ShowJobReply *reply;
    request.has_job = 1;
    int code = job_arg_find(connect, word, true, &request.job);
    if (code == VERB_OK)
        code = connect_ask(connect, "ShowJob", &request.base, (ProtobufCMessage **)&reply);
    if (code != VERB_OK)
        return code;
    if (format != OUTPUT_TABLE)
        output_message(format, &reply->base);
    else if (reply->job)
        print(reply);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return VERB_OK;
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    enum output_format format;
    int code = VERB_USAGE;
    (void)argc;
    if (!output_parse(config->connect.output, &format))
        return VERB_USAGE;
    struct connect *connect = connect_open(&config->connect, &code);
    if (connect)
        code = show(connect, argv[0], format);
    connect_close(connect);
    return code;
}

const struct verb cmd_show = {
    .name = "show",
    .args = "JOB",
    .summary = "One job: why it waits or failed, its workers, attempts, checkpoints, events.",
    .examples = "  rondoctl show 7\n"
                "  rondoctl show charlm\n"
                "  rondoctl show 7 -o yaml\n",
    .rows = rows,
    .config_size = sizeof(struct config),
    .operands_min = 1,
    .operands_max = 1,
    .run = run};
