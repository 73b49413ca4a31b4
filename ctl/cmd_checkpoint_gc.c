/* cmd_checkpoint_gc.c - what retention and sweeping would remove, and why. Removes nothing.
 * Loop thread. */
#include "base/mem.h"
#include "checkpoint/json_text.h"
#include "checkpoint/retain.h"
#include "checkpoint/vault_list.h"
#include "ctl/checkpoint_at.h"
#include "ctl/cmd.h"
#include "ctl/job_arg.h"
#include "ctl/output.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct config {
    struct checkpoint_flags flags;
    bool dry_run;
    uint32_t keep;
    uint64_t keep_every_steps;
};

static const struct option rows[] = {
    CHECKPOINT_ROWS,
    {"dry_run", OPT_BOOL, offsetof(struct config, dry_run), NULL, 0, 0,
     "Needed: this verb shows only; removing is the daemon's work."},
    {"keep", OPT_U32, offsetof(struct config, keep), "3", 1, 100000,
     "With --vault: the newest of each branch that stay."},
    {"keep_every_steps", OPT_U64, offsetof(struct config, keep_every_steps), "0", 0, INT64_MAX,
     "With --vault: the first at or past each multiple stays too; 0: none."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static const struct table_column columns[] = {
    {"PATH", TABLE_SHRINK}, {"JOB", TABLE_RIGHT},    {"STEP", TABLE_RIGHT}, {"SIZE", TABLE_RIGHT},
    {"STATE", TABLE_STATE}, {"VERDICT", TABLE_LEFT}, {"WHY", TABLE_SHRINK}};

struct verdict { /* of one directory */
    const char *path, *state, *why;
    int64_t job, step;
    uint64_t bytes;
    bool keep, is_row;
};

static void add_number(struct table *table, bool is_known, int64_t number)
{
    if (is_known)
        table_addf(table, "%" PRId64, number);
    else
        table_add(table, "");
}

static void add(struct table *table, const struct verdict *verdict)
{
    char size[32];
    text_bytes(verdict->bytes, size, sizeof size);
    table_add(table, verdict->path);
    add_number(table, verdict->is_row, verdict->job);
    add_number(table, verdict->is_row, verdict->step);
    table_add(table, size);
    table_add(table, verdict->state);
    table_add(table, verdict->keep ? "keep" : "remove");
    table_add(table, verdict->why);
}

static void add_json(struct text *out, const struct verdict *verdict)
{
    text_add(out, out->len ? ",\n  {\"path\": " : "{\"verdicts\": [\n  {\"path\": ");
    json_text_string(out, verdict->path, strlen(verdict->path));
    text_addf(out, ", \"state\": \"%s\", \"keep\": %s, \"bytes\": \"%" PRIu64 "\"", verdict->state,
              verdict->keep ? "true" : "false", verdict->bytes);
    if (verdict->is_row)
        text_addf(out, ", \"job\": \"%" PRId64 "\", \"step\": \"%" PRId64 "\"", verdict->job,
                  verdict->step);
    text_add(out, ", \"why\": ");
    json_text_string(out, verdict->why, strlen(verdict->why));
    text_add(out, "}");
}

/* --- without a daemon */

static uint64_t disk_of(const struct vault_list_entry *entry)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < entry->parts_count; i++)
        sum += entry->parts[i].disk;
    return sum;
}

/* What is no checkpoint. */
static struct verdict other(const struct vault_list_entry *entry)
{
    static const struct {
        const char *state, *why;
        bool keep;
    } texts[] = {
        [VAULT_LIST_SEALED] = {"SEALED", "of no job: no retention knows it", true},
        [VAULT_LIST_BAD] = {"DAMAGED", "its manifest is none; look before it is removed", true},
        [VAULT_LIST_UNSEALED] = {"UNSEALED",
                                 "no manifest: swept once its attempt is over and its lease past",
                                 false},
        [VAULT_LIST_DELETED] = {"DELETED", "a tombstone: the rest of a deletion", false},
        [VAULT_LIST_STAGING] = {"STAGING", "the rest of a copy or export, unless it still runs",
                                false},
    };
    return (struct verdict){.path = entry->path,
                            .state = texts[entry->kind].state,
                            .why = texts[entry->kind].why,
                            .bytes = disk_of(entry),
                            .keep = texts[entry->kind].keep};
}

/* As the daemon orders them: by attempt, then by step. */
static int oldest_first(const void *a, const void *b)
{
    const Pb__Checkpoint *left = (*(const struct vault_list_entry *const *)a)->row;
    const Pb__Checkpoint *right = (*(const struct vault_list_entry *const *)b)->row;
    if (left->attempt != right->attempt)
        return left->attempt < right->attempt ? -1 : 1;
    if (left->step != right->step)
        return left->step < right->step ? -1 : 1;
    return (left->created_us > right->created_us) - (left->created_us < right->created_us);
}

/* One job's sealed ones; `of` is sorted here. */
static void plan_job(const struct config *config, const struct vault_list_entry **of, size_t count,
                     void (*fn)(void *arg, const struct verdict *verdict), void *arg)
{
    SCOPED(mem_free) void *items_memory = mem_array(count, sizeof(struct retain_item));
    SCOPED(mem_free) void *why_memory = mem_array(count, sizeof(enum retain_why));
    struct retain_item *items = items_memory;
    enum retain_why *why = why_memory;
    struct retain_policy policy = {.newest = config->keep, .every_steps = config->keep_every_steps};
    qsort(of, count, sizeof *of, oldest_first);
    for (size_t i = 0; i < count; i++) {
        const Pb__Checkpoint *row = of[i]->row;
        items[i] = (struct retain_item){.id = row->id,
                                        .parent = row->parent,
                                        .attempt = row->attempt,
                                        .incarnation = 1,
                                        .step = row->step,
                                        .committed_us = row->created_us,
                                        .usable = true};
    }
    retain_plan(items, count, &policy, why);
    for (size_t i = count; i-- > 0;) {
        struct verdict verdict = {.path = of[i]->path,
                                  .state = "SEALED",
                                  .why = retain_why_text(why[i]),
                                  .job = of[i]->row->job,
                                  .step = of[i]->row->step,
                                  .bytes = disk_of(of[i]),
                                  .keep = why[i] > RETAIN_UNUSABLE,
                                  .is_row = true};
        fn(arg, &verdict);
    }
}

static void plan_vault(const struct config *config, const struct vault_list *list,
                       void (*fn)(void *arg, const struct verdict *verdict), void *arg)
{
    SCOPED(mem_free) void *memory = mem_array(list->count + 1, sizeof(void *));
    const struct vault_list_entry **of = memory;
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) { /* they are in the order of jobs */
        const struct vault_list_entry *entry = &list->entries[i];
        if (entry->kind != VAULT_LIST_SEALED || entry->row->job == 0) {
            struct verdict verdict = other(entry);
            fn(arg, &verdict);
            continue;
        }
        if (count && of[0]->row->job != entry->row->job) {
            plan_job(config, of, count, fn, arg);
            count = 0;
        }
        of[count++] = entry;
    }
    if (count)
        plan_job(config, of, count, fn, arg);
}

struct sink {
    struct table *table; /* NULL: json */
    struct text *json;
    uint64_t gone;
    size_t count;
};

static void take(void *arg, const struct verdict *verdict)
{
    struct sink *sink = arg;
    if (!verdict->keep) {
        sink->gone += verdict->bytes;
        sink->count++;
    }
    if (sink->table)
        add(sink->table, verdict);
    else
        add_json(sink->json, verdict);
}

static void finish(struct sink *sink)
{
    char size[32];
    text_bytes(sink->gone, size, sizeof size);
    if (sink->table) {
        output_table_take(sink->table);
        printf("%zu would be removed, %s; nothing was\n", sink->count, size);
    } else if (sink->json->len) {
        printf("%s\n]}\n", text_get(sink->json));
    } else {
        printf("{\"verdicts\": []}\n");
    }
}

static int gc_vault(const struct config *config, struct sink *sink)
{
    SCOPED(vault_list_destroy) struct vault_list *list = NULL;
    struct error err = {0};
    enum status st = vault_list_read(config->flags.vault, true, &list, &err);
    if (st != STATUS_OK)
        return checkpoint_at_fail(config->flags.vault, st, err.text);
    plan_vault(config, list, take, sink);
    return VERB_OK;
}

/* --- by the daemon */

static int gc_daemon(const struct config *config, const char *job, enum output_format format,
                     struct sink *sink)
{
    struct checkpoint_at_source source = {.flags = &config->flags};
    Pb__PlanRetentionRequest request = PB__PLAN_RETENTION_REQUEST__INIT;
    Pb__PlanRetentionReply *reply;
    int code = VERB_OK;
    struct connect *connect = checkpoint_at_connect(&source, &code);
    if (!connect)
        return code;
    request.has_job = 1;
    code = job_arg_find(connect, job, true, &request.job);
    if (code == VERB_OK)
        code = connect_ask(connect, "PlanRetention", &request.base, (ProtobufCMessage **)&reply);
    if (code == VERB_OK && format != OUTPUT_TABLE)
        output_message(format, &reply->base);
    for (size_t i = 0; code == VERB_OK && format == OUTPUT_TABLE && i < reply->n_verdicts; i++) {
        const Pb__Checkpoint *row = reply->verdicts[i]->checkpoint;
        struct verdict verdict = {
            .path = row->path,
            .state = enum_name(&pb__checkpoint__state__descriptor, (int)row->state),
            .why = reply->verdicts[i]->why,
            .job = row->job,
            .step = row->step,
            .bytes = row->bytes,
            .keep = reply->verdicts[i]->keep,
            .is_row = true};
        take(sink, &verdict);
    }
    if (code == VERB_OK)
        protobuf_c_message_free_unpacked(&reply->base, NULL);
    checkpoint_at_end(&source);
    return code;
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    enum output_format format;
    struct text json;
    if (!output_parse(config->flags.connect.output, &format))
        return VERB_USAGE;
    if (!config->dry_run || (*config->flags.vault != 0) == (argc > 0)) {
        output_error(
            config->dry_run
                ? "checkpoint gc: either a JOB, or --vault DIR"
                : "checkpoint gc: only --dry-run is here; the daemon removes what it shows");
        return VERB_USAGE;
    }
    text_init(&json, 0);
    struct sink sink = {.json = &json};
    if (format == OUTPUT_TABLE)
        sink.table = table_create(columns, COUNT_OF(columns));
    int code = argc > 0 ? gc_daemon(config, argv[0], format, &sink) : gc_vault(config, &sink);
    if (code == VERB_OK && (argc == 0 || format == OUTPUT_TABLE))
        finish(&sink);
    else
        table_destroy(sink.table);
    text_fini(&json);
    return code;
}

const struct verb cmd_checkpoint_gc = {
    .name = "checkpoint gc",
    .args = "[JOB]",
    .summary = "What retention and sweeping would remove, and why; with --dry-run only.",
    .examples = "  rondoctl checkpoint gc --dry-run charlm\n"
                "  rondoctl checkpoint gc --dry-run --vault /srv/vault --keep 2\n",
    .rows = rows,
    .config_size = sizeof(struct config),
    .operands_min = 0,
    .operands_max = 1,
    .run = run};
