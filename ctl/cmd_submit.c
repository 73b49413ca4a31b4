/* cmd_submit.c - jobs from YAML files. Loop thread. */
#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/interrupt.h"
#include "ctl/output.h"
#include "ctl/progress.h"
#include "ctl/submission.h"
#include <inttypes.h>
#include <stdio.h>

struct config {
    struct connect_flags connect;
    struct option_list set;
    bool follow, wait, dry_run, hold, quiet;
};
#define AT(member) offsetof(struct config, member)

static const struct option rows[] = {
    CONNECT_ROWS,
    {"set", OPT_LIST, AT(set), NULL, 0, 1 << 20,
     "Change a field after reading the file: roles[0].workers=4, roles.trainer.env.A=b, "
     "roles[0].command[2]=x; an entry of a list by its index or its name."},
    {"follow", OPT_BOOL, AT(follow), "false", 0, 0,
     "Show progress until the job ends, then its loss curve; exit 1 when it fails."},
    {"wait", OPT_BOOL, AT(wait), "false", 0, 0,
     "Wait until every job has ended; exit 1 when one fails."},
    {"dry_run", OPT_BOOL, AT(dry_run), "false", 0, 0,
     "Check everything, here and at the daemon, and store nothing."},
    {"hold", OPT_BOOL, AT(hold), "false", 0, 0, "Submit HELD; `rondoctl release` starts them."},
    {"quiet", OPT_BOOL, AT(quiet), "false", 0, 0, "Print ids only."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static void say_submitted(const struct submission *submission, const Pb__SubmitManyReply *reply,
                          bool quiet)
{
    for (size_t i = 0; i < reply->n_results; i++) {
        if (reply->results[i]->status != STATUS_OK)
            continue;
        printf(quiet ? "%" PRId64 : "submitted job %" PRId64, reply->results[i]->job);
        printf(quiet ? "\n" : " ");
        if (!quiet)
            output_text("", submission_spec(submission, i)->name);
    }
    fflush(stdout);
}

/* What goes on when the wait is interrupted. */
static void say_when_interrupted(const int64_t *ids, size_t count)
{
    struct text line;
    text_init(&line, 0);
    text_addf(&line, count == 1 ? "job %" PRId64 " goes on" : "jobs %" PRId64, ids[0]);
    if (count > 1)
        text_addf(&line, " to %" PRId64 " go on", ids[count - 1]);
    text_add(&line, "; `rondoctl cancel");
    for (size_t i = 0; i < count && i < 5; i++)
        text_addf(&line, " %" PRId64, ids[i]);
    text_add(&line, count == 1 ? "` ends it" : count > 5 ? " ...` ends them" : "` ends them");
    interrupt_say(text_get(&line));
    text_fini(&line);
}

/* Those that were accepted, until their ends. */
static int stay(const struct config *config, struct connect *connect,
                const Pb__SubmitManyReply *reply)
{
    SCOPED_TEXT char *memory = mem_array(reply->n_results + 1, sizeof(int64_t));
    int64_t *ids = (int64_t *)(void *)memory;
    size_t count = 0;
    for (size_t i = 0; i < reply->n_results; i++)
        if (reply->results[i]->status == STATUS_OK)
            ids[count++] = reply->results[i]->job;
    if (count == 0 || (!config->follow && !config->wait))
        return VERB_OK;
    say_when_interrupted(ids, count);
    if (config->follow && count == 1)
        return progress_follow(connect, ids[0]);
    return progress_wait(connect, ids, count, config->quiet);
}

static void reply_fini(Pb__SubmitManyReply *reply)
{
    for (size_t i = 0; i < reply->n_results; i++) {
        mem_free(reply->results[i]->error);
        mem_free(reply->results[i]);
    }
    mem_free(reply->results);
}

static int submit(const struct config *config, struct connect *connect,
                  struct submission *submission, enum output_format format)
{
    Pb__SubmitManyReply reply = PB__SUBMIT_MANY_REPLY__INIT;
    int code = submission_send(submission, connect, &reply);
    if (format == OUTPUT_TABLE)
        say_submitted(submission, &reply, config->quiet);
    else
        output_message(format, &reply.base);
    fflush(stdout);
    if (code == VERB_OK || code == VERB_REFUSED) {
        submission_warn(submission, connect);
        int later = stay(config, connect, &reply);
        code = code > later ? code : later;
    }
    reply_fini(&reply);
    return code;
}

static int dry_run(struct connect *connect, struct submission *submission,
                   enum output_format format)
{
    Pb__SubmitManyReply reply = PB__SUBMIT_MANY_REPLY__INIT;
    int code = submission_try(submission, connect, &reply);
    if (format != OUTPUT_TABLE)
        output_message(format, &reply.base);
    else if (code == VERB_OK)
        printf("%zu job%s checked; nothing is stored\n", submission_count(submission),
               submission_count(submission) == 1 ? " is" : "s are");
    reply_fini(&reply);
    return code;
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    struct submission_options options = {.sets = (const char *const *)config->set.items,
                                         .sets_count = config->set.count,
                                         .hold = config->hold};
    enum output_format format;
    int code = VERB_USAGE;
    if (!output_parse(config->connect.output, &format))
        return VERB_USAGE;
    struct submission *submission = submission_load(argv, (size_t)argc, &options, &code);
    if (!submission)
        return code;
    struct connect *connect = connect_open(&config->connect, &code);
    if (connect)
        code = config->dry_run ? dry_run(connect, submission, format)
                               : submit(config, connect, submission, format);
    connect_close(connect);
    submission_destroy(submission);
    return code;
}

const struct verb cmd_submit = {
    .name = "submit",
    .args = "FILE...",
    .summary = "Submit jobs from YAML files; nothing is submitted when one has a problem.",
    .examples = "  rondoctl submit job.yaml --follow\n"
                "  rondoctl submit job.yaml --set roles[0].workers=4 --set name=big\n"
                "  rondoctl submit jobs/*.yaml --wait\n"
                "  rondoctl submit - < job.yaml\n",
    .rows = rows,
    .config_size = sizeof(struct config),
    .operands_min = 1,
    .operands_max = -1,
    .run = run};
