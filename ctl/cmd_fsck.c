/* cmd_fsck.c - do database, vaults and agents say the same of every checkpoint? Loop thread. */
#include "base/mem.h"
#include "ctl/checkpoint_at.h"
#include "ctl/cmd.h"
#include "ctl/fsck_report.h"
#include "ctl/fsck_vault.h"
#include "ctl/job_arg.h"
#include "ctl/meter.h"
#include "ctl/term.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct config {
    struct checkpoint_flags flags;
    bool repair, deep;
    char *project, *job;
    struct option_list gone;
};

static const struct option rows[] = {
    CHECKPOINT_ROWS,
    {"repair", OPT_BOOL, offsetof(struct config, repair), NULL, 0, 0,
     "Repair what is found; without it nothing is changed."},
    {"deep", OPT_BOOL, offsetof(struct config, deep), NULL, 0, 0,
     "Read every byte as well, and compare it with its digest."},
    {"project", OPT_TEXT, offsetof(struct config, project), NULL, 0, 253,
     "Only checkpoints of this project's jobs."},
    {"job", OPT_TEXT, offsetof(struct config, job), NULL, 0, 253,
     "Only those of this job: an id or a name."},
    {"gone", OPT_LIST, offsetof(struct config, gone), NULL, 0, 0,
     "This vault is empty because its bytes are lost: what was in it is DAMAGED."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

struct run {
    struct fsck_report report;
    bool tty, shown, began;
};

/* --- by the daemon */

static void erase(struct run *run)
{
    if (run->shown)
        fputs("\r\x1b[K", stderr);
    run->shown = false;
}

static void show(struct run *run, const Pb__FsckProgress *progress)
{
    char fitted[400], bytes[32];
    SCOPED_TEXT char *line = NULL;
    if (!run->tty)
        return;
    text_bytes(progress->bytes, bytes, sizeof bytes);
    line = mem_printf("fsck: %s, %" PRIu64 " directories, %s read",
                      progress->text ? progress->text : "", progress->directories, bytes);
    erase(run);
    term_fit(line, term_columns(STDERR_FILENO) - 1, fitted, sizeof fitted);
    fputs(fitted, stderr);
    fflush(stderr);
    run->shown = true;
}

static bool take(void *arg, const ProtobufCMessage *message)
{
    struct run *run = arg;
    const Pb__FsckReply *reply = (const Pb__FsckReply *)message;
    run->began = true;
    if (reply->progress)
        show(run, reply->progress);
    if (reply->difference)
        fsck_report_add(&run->report, reply->difference);
    if (reply->summary)
        fsck_report_end(&run->report, reply->summary);
    return true;
}

static void fill(const struct config *config, Pb__FsckRequest *request)
{
    request->has_repair = request->has_deep = true;
    request->repair = config->repair;
    request->deep = config->deep;
    request->project = *config->project ? config->project : NULL;
    request->gone_vaults = config->gone.items;
    request->n_gone_vaults = config->gone.count;
}

/* Again while the daemon is away; once it has answered anything, never. */
static enum status ask(struct connect *connect, const Pb__FsckRequest *request, struct run *run,
                       struct error *err)
{
    int64_t end = connect_now_ms(connect) + connect_timeout_ms(connect);
    for (unsigned tries = 0;; tries++) {
        enum status st = connect_stream(connect, "Fsck", &request->base, take, run, err);
        if (run->began || !connect_may_retry(st) || connect_now_ms(connect) >= end)
            return st;
        connect_say_waiting(connect, err->text);
        connect_pause(tries);
    }
}

static int by_daemon(const struct config *config, struct run *run)
{
    Pb__FsckRequest request = PB__FSCK_REQUEST__INIT;
    char id[CONNECT_ID_SIZE];
    struct error err = {0};
    int code = VERB_USAGE;
    struct connect *connect = connect_open(&config->flags.connect, &code);
    if (!connect)
        return code;
    connect_request_id(connect, id);
    fill(config, &request);
    request.request_id = id;
    request.has_job = *config->job != 0;
    code = *config->job ? job_arg_find(connect, config->job, true, &request.job) : VERB_OK;
    if (code == VERB_OK) {
        enum status st = ask(connect, &request, run, &err);
        erase(run);
        if (st != STATUS_OK)
            code = connect_fail(connect, st, err.text);
        else if (!run->report.message.summary)
            code = connect_fail(connect, STATUS_UNAVAILABLE, "the daemon's answer has no end");
    }
    connect_close(connect);
    return code;
}

/* --- without it */

static int by_directory(const struct config *config, struct run *run)
{
    struct fsck_vault_options options = {
        .vault = config->flags.vault, .repair = config->repair, .deep = config->deep};
    if (*config->job && !text_to_i64(config->job, 1, INT64_MAX, &options.job)) {
        output_error("fsck --vault: --job is a number there, '%.60s' is none", config->job);
        return VERB_USAGE;
    }
    if (*config->project || config->gone.count) {
        output_error("fsck --vault: projects and lost vaults are known to the daemon only");
        return VERB_USAGE;
    }
    return fsck_vault_run(&options, &run->report);
}

static int run_fsck(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    struct run run = {.tty = term_is_tty(STDERR_FILENO)};
    enum output_format format;
    (void)argc;
    (void)argv;
    if (!output_parse(config->flags.connect.output, &format))
        return VERB_USAGE;
    if (*config->project && *config->job) {
        output_error("fsck: either --project or --job");
        return VERB_USAGE;
    }
    fsck_report_init(&run.report, format, config->repair);
    int code = *config->flags.vault ? by_directory(config, &run) : by_daemon(config, &run);
    if (code == VERB_OK)
        code = fsck_report_print(&run.report);
    fsck_report_fini(&run.report);
    meter_last_word("fsck");
    return code;
}

const struct verb cmd_fsck = {
    .name = "fsck",
    .args = "",
    .summary = "Compares database, vaults and agents; explains each difference, and repairs it.",
    .examples = "  rondoctl fsck\n"
                "  rondoctl fsck --deep --job charlm\n"
                "  rondoctl fsck --repair\n"
                "  rondoctl fsck --repair --gone scratch\n"
                "  rondoctl fsck --vault /srv/vault --deep\n"
                "  rondoctl fsck -o json | jq '.differences[].kind'\n",
    .rows = rows,
    .config_size = sizeof(struct config),
    .operands_min = 0,
    .operands_max = 0,
    .run = run_fsck};
