/* cmd_checkpoint_verify.c - is every byte of a checkpoint what was committed? Loop thread. */
#include "base/mem.h"
#include "checkpoint/json_text.h"
#include "checkpoint/vault_list.h"
#include "checkpoint/verify.h"
#include "ctl/checkpoint_at.h"
#include "ctl/cmd.h"
#include "ctl/meter.h"
#include "ctl/output.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { POLL_MS = 300 };

struct config {
    struct checkpoint_flags flags;
    bool here;
};

static const struct option rows[] = {
    CHECKPOINT_ROWS,
    {"here", OPT_BOOL, offsetof(struct config, here), NULL, 0, 0,
     "Read the bytes on this machine instead of having an agent do it."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

/* --- reading here */

static void add_json(const struct checkpoint_at *at, const struct verify_report *report,
                     struct text *out)
{
    text_add(out, out->len ? ",\n  {\"path\": " : "{\"verified\": [\n  {\"path\": ");
    json_text_string(out, at->row->path, strlen(at->row->path));
    text_addf(out,
              ", \"whole\": %s, \"bytes\": \"%" PRIu64 "\", \"files\": %" PRIu64
              ", \"parts\": %" PRIu64 ", \"sharded\": %s, \"damaged\": [",
              report->found_count ? "false" : "true", report->bytes, report->files, report->parts,
              report->sharded ? "true" : "false");
    for (size_t i = 0; i < report->found_count; i++) {
        text_add(out, i ? ", {\"file\": " : "{\"file\": ");
        json_text_string(out, report->found[i].file, strlen(report->found[i].file));
        text_add(out, ", \"text\": ");
        json_text_string(out, report->found[i].text, strlen(report->found[i].text));
        text_add(out, "}");
    }
    text_add(out, "]}");
}

static void say_report(const struct checkpoint_at *at, const struct verify_report *report,
                       int64_t ms)
{
    char size[32], rate[32];
    for (size_t i = 0; i < report->found_count; i++) {
        const char *file = report->found[i].file, *text = report->found[i].text;
        bool named = strncmp(text, file, strlen(file)) == 0;
        output_error("%s: %s%s%s", at->row->path, named ? "" : file, named ? "" : ": ", text);
    }
    text_bytes(report->bytes, size, sizeof size);
    text_bytes(ms > 0 ? report->bytes * 1000 / (uint64_t)ms : report->bytes, rate, sizeof rate);
    printf("%s: ", report->found_count ? "DAMAGED" : "whole");
    printf("%s in %" PRIu64 " file%s of %" PRIu64 " part%s read (%s/s): ", size, report->files,
           report->files == 1 ? "" : "s", report->parts, report->parts == 1 ? "" : "s", rate);
    output_text("", at->row->path);
}

static int verify_here(struct checkpoint_at_source *source, struct checkpoint_at *at,
                       struct text *json)
{
    SCOPED(verify_report_destroy) struct verify_report *report = NULL;
    struct error err = {0};
    struct meter meter;
    struct timespec from, to;
    int code = checkpoint_at_open(source, at);
    if (code != VERB_OK)
        return code;
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    meter_begin(&meter, "verify", at->row->bytes);
    meter_also(&meter, checkpoint_at_renew, at->source);
    enum status st = verify_run(at->dir, at->path, at->offline ? NULL : at->row->manifest_digest,
                                &meter.watcher, &report, &err);
    checkpoint_at_close(source, at);
    meter_end(&meter);
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    if (st != STATUS_OK)
        return checkpoint_at_fail(at->row->path, st, err.text);
    if (json)
        add_json(at, report, json);
    else
        say_report(at, report,
                   (int64_t)(to.tv_sec - from.tv_sec) * 1000 +
                       (to.tv_nsec - from.tv_nsec) / 1000000);
    return report->found_count ? VERB_NEGATIVE : VERB_OK;
}

/* --- by an agent */

static int ask_row(struct connect *connect, int64_t id, Pb__CheckpointReply **out)
{
    Pb__ShowCheckpointRequest request = PB__SHOW_CHECKPOINT_REQUEST__INIT;
    request.has_checkpoint = 1;
    request.checkpoint = id;
    return connect_ask(connect, "ShowCheckpoint", &request.base, (ProtobufCMessage **)out);
}

/* Neither asked for any more, nor as it was. */
static bool is_over(const Pb__Checkpoint *row, const Pb__Checkpoint *before)
{
    return !checkpoint_at_usable(row) ||
           (!row->verify_asked && row->state == PB__CHECKPOINT__STATE__VERIFIED &&
            row->verified_us > before->verified_us);
}

static int wait_verified(struct connect *connect, const Pb__Checkpoint *before,
                         enum output_format format)
{
    struct timespec pause = {0, POLL_MS * 1000000L};
    for (;;) {
        Pb__CheckpointReply *reply;
        int code = ask_row(connect, before->id, &reply);
        if (code != VERB_OK)
            return code;
        const Pb__Checkpoint *row = reply->checkpoint;
        bool over = is_over(row, before);
        if (over) {
            const char *state = enum_name(&pb__checkpoint__state__descriptor, (int)row->state);
            code = row->state == PB__CHECKPOINT__STATE__VERIFIED ? VERB_OK : VERB_NEGATIVE;
            if (format != OUTPUT_TABLE) {
                output_message(format, &reply->base);
            } else {
                printf("checkpoint %" PRId64 " (job %" PRId64 ", step %" PRId64 ") %s%s", row->id,
                       row->job, row->step, state, row->reason && *row->reason ? ": " : "\n");
                output_text("", row->reason ? row->reason : "");
            }
        }
        protobuf_c_message_free_unpacked(&reply->base, NULL);
        if (over)
            return code;
        nanosleep(&pause, NULL);
    }
}

static int verify_there(struct connect *connect, const Pb__Checkpoint *row,
                        enum output_format format)
{
    Pb__VerifyCheckpointRequest request = PB__VERIFY_CHECKPOINT_REQUEST__INIT;
    char id[CONNECT_ID_SIZE];
    ProtobufCMessage *reply;
    connect_request_id(connect, id);
    request.request_id = id;
    request.has_checkpoint = 1;
    request.checkpoint = row->id;
    int code = connect_ask(connect, "VerifyCheckpoint", &request.base, &reply);
    if (code != VERB_OK)
        return code;
    protobuf_c_message_free_unpacked(reply, NULL);
    return wait_verified(connect, row, format);
}

/* --- which ones */

static int verify_word(struct checkpoint_at_source *source, const char *word, bool here,
                       enum output_format format, struct text *json)
{
    struct checkpoint_at at;
    int code = checkpoint_at_find(source, word, &at);
    if (code != VERB_OK)
        return code;
    if (at.offline || here)
        code = verify_here(source, &at, format == OUTPUT_TABLE ? NULL : json);
    else
        code = verify_there(source->connect, at.row, format);
    checkpoint_at_fini(&at);
    return code;
}

static int verify_vault(struct checkpoint_at_source *source, enum output_format format,
                        struct text *json)
{
    SCOPED(vault_list_destroy) struct vault_list *list = NULL;
    const char *vault = source->flags->vault;
    struct error err = {0};
    int worst = VERB_OK;
    enum status st = vault_list_read(vault, false, &list, &err);
    if (st != STATUS_OK)
        return checkpoint_at_fail(vault, st, err.text);
    for (size_t i = 0; i < list->count; i++) {
        const struct vault_list_entry *entry = &list->entries[i];
        int code = VERB_OK;
        if (entry->kind == VAULT_LIST_BAD)
            code = checkpoint_at_fail(*entry->path ? entry->path : vault, STATUS_DATA_LOSS,
                                      entry->problem);
        else if (entry->kind == VAULT_LIST_SEALED)
            code = verify_word(source, entry->path, true, format, json);
        worst = code > worst ? code : worst;
    }
    return worst;
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    struct checkpoint_at_source source = {.flags = &config->flags};
    enum output_format format;
    struct text json;
    int worst = VERB_OK;
    if (!output_parse(config->flags.connect.output, &format))
        return VERB_USAGE;
    if (argc == 0 && !*config->flags.vault) {
        output_error("checkpoint verify: which CHECKPOINT? (or --vault DIR for all in it)");
        return VERB_USAGE;
    }
    text_init(&json, 0);
    if (argc == 0)
        worst = verify_vault(&source, format, &json);
    for (int i = 0; i < argc; i++) {
        int code = verify_word(&source, argv[i], config->here, format, &json);
        worst = code > worst ? code : worst;
    }
    if (json.len)
        printf("%s\n]}\n", text_get(&json));
    text_fini(&json);
    checkpoint_at_end(&source);
    meter_last_word("checkpoint verify");
    return worst;
}

const struct verb cmd_checkpoint_verify = {
    .name = "checkpoint verify",
    .args = "[CHECKPOINT...]",
    .summary = "Reads every byte again; names damaged files and blocks. Exit code 1: damaged.",
    .examples = "  rondoctl checkpoint verify charlm@120\n"
                "  rondoctl checkpoint verify /srv/vault/job-7/step-120.1\n"
                "  rondoctl checkpoint verify --vault /srv/vault\n",
    .rows = rows,
    .config_size = sizeof(struct config),
    .operands_min = 0,
    .operands_max = -1,
    .run = run};
