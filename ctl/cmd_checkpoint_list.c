/* cmd_checkpoint_list.c - the checkpoints of a job, or of a vault without a daemon. Loop thread. */
#include "base/mem.h"
#include "checkpoint/vault_list.h"
#include "ctl/checkpoint_at.h"
#include "ctl/cmd.h"
#include "ctl/output.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>

struct config {
    struct checkpoint_flags flags;
    uint32_t limit;
};

static const struct option rows[] = {CHECKPOINT_ROWS,
                                     {"limit", OPT_U32, offsetof(struct config, limit), "50", 1,
                                      5000, "At most this many, the newest."},
                                     {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static const struct table_column columns[] = {
    {"ID", TABLE_RIGHT},      {"JOB", TABLE_RIGHT},   {"STEP", TABLE_RIGHT},
    {"SAMPLES", TABLE_RIGHT}, {"STATE", TABLE_STATE}, {"RANKS", TABLE_RIGHT},
    {"FORM", TABLE_LEFT},     {"SIZE", TABLE_RIGHT},  {"AGE", TABLE_RIGHT},
    {"PIN", TABLE_LEFT},      {"PATH", TABLE_SHRINK}, {"NOTE", TABLE_SHRINK}};

static void add(struct table *table, const Pb__Checkpoint *row, const char *note)
{
    char size[32], age[32];
    text_bytes(row->bytes, size, sizeof size);
    output_age(row->committed_us ? row->committed_us : row->created_us, age, sizeof age);
    table_addf(table, "%" PRId64, row->id);
    table_addf(table, "%" PRId64, row->job);
    table_addf(table, "%" PRId64, row->step);
    table_addf(table, "%" PRId64, row->samples);
    table_add(table, enum_name(&pb__checkpoint__state__descriptor, (int)row->state));
    table_addf(table, "%u", row->world ? row->world : row->parts_expected);
    table_add(table, row->format == PB__CHECKPOINT__FORMAT__SHARDED ? "sharded" : "plain");
    table_add(table, size);
    table_add(table, age);
    table_add(table, row->pinned ? "pinned" : "");
    table_add(table, row->path);
    table_add(table, note ? note : row->reason);
}

/* --- without a daemon */

/* Rows as a reply of the daemon has them: newest first, and a manifest that is none as DAMAGED. */
static void fill(const struct vault_list *list, size_t limit, Pb__ListCheckpointsReply *reply)
{
    reply->checkpoints = mem_array(list->count + 1, sizeof *reply->checkpoints);
    for (size_t i = list->count; i-- > 0 && reply->n_checkpoints < limit;) {
        const struct vault_list_entry *entry = &list->entries[i];
        Pb__Checkpoint *row = NULL;
        if (entry->kind == VAULT_LIST_SEALED) {
            row = (Pb__Checkpoint *)message_copy(&entry->row->base);
            row->reason = mem_strdup(CHECKPOINT_AT_SEALED);
        } else if (entry->kind == VAULT_LIST_BAD) {
            row = NEW(Pb__Checkpoint);
            pb__checkpoint__init(row);
            row->has_state = 1;
            row->state = PB__CHECKPOINT__STATE__DAMAGED;
            row->path = mem_strdup(entry->path);
            row->reason = mem_strdup(entry->problem);
        }
        if (row)
            reply->checkpoints[reply->n_checkpoints++] = row;
    }
}

static void say_rest(const struct vault_list *list, const char *vault)
{
    size_t others = 0, sealed = 0;
    for (size_t i = 0; i < list->count; i++) {
        sealed += list->entries[i].kind == VAULT_LIST_SEALED;
        others += list->entries[i].kind > VAULT_LIST_BAD;
    }
    if (sealed)
        printf("%s\n", CHECKPOINT_AT_SEALED);
    if (others) {
        printf("%zu more director%s no checkpoint%s: rondoctl checkpoint gc --dry-run --vault ",
               others, others == 1 ? "y is" : "ies are", others == 1 ? "" : "s");
        output_text("", vault);
    }
}

static int list_vault(const struct config *config, enum output_format format)
{
    SCOPED(vault_list_destroy) struct vault_list *list = NULL;
    Pb__ListCheckpointsReply *reply = NEW(Pb__ListCheckpointsReply);
    struct error err = {0};
    enum status st = vault_list_read(config->flags.vault, false, &list, &err);
    pb__list_checkpoints_reply__init(reply);
    if (st == STATUS_OK)
        fill(list, config->limit, reply);
    if (st == STATUS_OK && format != OUTPUT_TABLE) {
        output_message(format, &reply->base);
    } else if (st == STATUS_OK) {
        struct table *table = table_create(columns, COUNT_OF(columns));
        for (size_t i = 0; i < reply->n_checkpoints; i++) {
            const Pb__Checkpoint *row = reply->checkpoints[i];
            add(table, row, row->state == PB__CHECKPOINT__STATE__SEALED ? "" : NULL);
        }
        output_table_take(table);
        say_rest(list, config->flags.vault);
    }
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return st == STATUS_OK ? VERB_OK : checkpoint_at_fail(config->flags.vault, st, err.text);
}

/* --- by the daemon */

static int list_daemon(const struct config *config, enum output_format format, const char *job)
{
    struct checkpoint_at_source source = {.flags = &config->flags};
    Pb__ListCheckpointsReply *reply;
    int code = VERB_OK;
    struct connect *connect = checkpoint_at_connect(&source, &code);
    if (!connect)
        return code;
    code = checkpoint_at_list(connect, job, config->limit, NULL, &reply);
    if (code == VERB_OK && format != OUTPUT_TABLE) {
        output_message(format, &reply->base);
    } else if (code == VERB_OK) {
        struct table *table = table_create(columns, COUNT_OF(columns));
        for (size_t i = 0; i < reply->n_checkpoints; i++)
            add(table, reply->checkpoints[i], NULL);
        output_table_take(table);
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
    if (!output_parse(config->flags.connect.output, &format))
        return VERB_USAGE;
    if ((*config->flags.vault != 0) == (argc > 0)) {
        output_error("checkpoint list: either a JOB, or --vault DIR");
        return VERB_USAGE;
    }
    return argc > 0 ? list_daemon(config, format, argv[0]) : list_vault(config, format);
}

const struct verb cmd_checkpoint_list = {
    .name = "checkpoint list",
    .args = "[JOB]",
    .summary = "A job's checkpoints, or those that a vault holds, newest first.",
    .examples = "  rondoctl checkpoint list charlm\n"
                "  rondoctl checkpoint list --vault /srv/vault -o json\n",
    .rows = rows,
    .config_size = sizeof(struct config),
    .operands_min = 0,
    .operands_max = 1,
    .run = run};
