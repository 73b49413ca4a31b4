/* cmd_checkpoint_du.c - bytes of checkpoints: by job, checkpoint and part. Loop thread. */
#include "base/mem.h"
#include "checkpoint/json_text.h"
#include "checkpoint/vault_list.h"
#include "ctl/checkpoint_at.h"
#include "ctl/cmd.h"
#include "ctl/output.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct config {
    struct checkpoint_flags flags;
    bool parts;
};

static const struct option rows[] = {
    CHECKPOINT_ROWS,
    {"parts", OPT_BOOL, offsetof(struct config, parts), NULL, 0, 0, "A line for each part, too."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static const struct table_column columns[] = {{"WHAT", TABLE_SHRINK},  {"FILES", TABLE_RIGHT},
                                              {"BYTES", TABLE_RIGHT},  {"DISK", TABLE_RIGHT},
                                              {"SHARED", TABLE_RIGHT}, {"NOTE", TABLE_SHRINK}};

struct sums {
    uint64_t files, bytes, disk, shared;
    bool disk_known;
};

static void add_sums(struct sums *to, const struct sums *more)
{
    to->files += more->files;
    to->bytes += more->bytes;
    to->disk += more->disk;
    to->shared += more->shared;
    to->disk_known = more->disk_known;
}

struct sink {
    struct table *table; /* NULL: json */
    struct text json;
};

static void put(struct sink *sink, const char *kind, const char *what, const struct sums *sums,
                const char *note)
{
    char size[32];
    if (!sink->table) {
        text_addf(&sink->json,
                  "%s{\"kind\": \"%s\", \"what\": ", sink->json.len ? ",\n  " : "{\"usage\": [\n  ",
                  kind);
        json_text_string(&sink->json, what, strlen(what));
        text_addf(&sink->json, ", \"files\": \"%" PRIu64 "\", \"bytes\": \"%" PRIu64 "\"",
                  sums->files, sums->bytes);
        if (sums->disk_known)
            text_addf(&sink->json, ", \"disk\": \"%" PRIu64 "\", \"shared\": \"%" PRIu64 "\"",
                      sums->disk, sums->shared);
        text_add(&sink->json, "}");
        return;
    }
    table_add(sink->table, what);
    table_addf(sink->table, "%" PRIu64, sums->files);
    text_bytes(sums->bytes, size, sizeof size);
    table_add(sink->table, size);
    text_bytes(sums->disk, size, sizeof size);
    table_add(sink->table, sums->disk_known ? size : "");
    text_bytes(sums->shared, size, sizeof size);
    table_add(sink->table, sums->disk_known && sums->shared ? size : "");
    table_add(sink->table, note);
}

static void finish(struct sink *sink)
{
    if (sink->table)
        output_table_take(sink->table);
    else
        printf("%s\n]}\n", text_get(&sink->json));
    text_fini(&sink->json);
}

/* --- a vault */

static const char *note_of(const struct vault_list_entry *entry)
{
    static const char *const notes[] = {[VAULT_LIST_SEALED] = "",
                                        [VAULT_LIST_BAD] = "its manifest is none",
                                        [VAULT_LIST_UNSEALED] = "unsealed",
                                        [VAULT_LIST_DELETED] = "being deleted",
                                        [VAULT_LIST_STAGING] = "a copy that is being made"};
    return notes[entry->kind];
}

static void put_parts(struct sink *sink, const struct vault_list_entry *entry)
{
    for (size_t i = 0; i < entry->parts_count; i++) {
        const struct vault_list_part *part = &entry->parts[i];
        const struct sums sums = {part->files, part->bytes, part->disk, part->shared, true};
        SCOPED_TEXT char *what =
            mem_printf("%s/%s", entry->path, *part->name ? part->name : "(beside the parts)");
        put(sink, "part", what, &sums, "");
    }
}

static struct sums sum_of(const struct vault_list_entry *entry)
{
    struct sums sums = {.disk_known = true};
    for (size_t i = 0; i < entry->parts_count; i++) {
        sums.files += entry->parts[i].files;
        sums.bytes += entry->parts[i].bytes;
        sums.disk += entry->parts[i].disk;
        sums.shared += entry->parts[i].shared;
    }
    return sums;
}

static void put_job(struct sink *sink, int64_t job, const struct sums *sums)
{
    SCOPED_TEXT char *what = job ? mem_printf("job %" PRId64, job) : mem_strdup("no job");
    put(sink, "job", what, sums, "");
}

static int du_vault(const struct config *config, struct sink *sink)
{
    SCOPED(vault_list_destroy) struct vault_list *list = NULL;
    struct error err = {0};
    struct sums all = {.disk_known = true}, of_job = {0};
    enum status st = vault_list_read(config->flags.vault, true, &list, &err);
    if (st != STATUS_OK)
        return checkpoint_at_fail(config->flags.vault, st, err.text);
    for (size_t i = 0; i < list->count; i++) {
        const struct vault_list_entry *entry = &list->entries[i];
        struct sums sums = sum_of(entry);
        int64_t job = entry->row ? entry->row->job : 0;
        put(sink, "checkpoint", entry->path, &sums, note_of(entry));
        if (config->parts)
            put_parts(sink, entry);
        add_sums(&of_job, &sums);
        add_sums(&all, &sums);
        const struct vault_list_entry *next = i + 1 < list->count ? entry + 1 : NULL;
        if (!next || (next->row ? next->row->job : 0) != job) {
            put_job(sink, job, &of_job);
            of_job = (struct sums){0};
        }
    }
    uint64_t twice = all.disk - list->disk; /* files with several names, counted at each */
    all.disk = list->disk;
    SCOPED_TEXT char *note = twice ? mem_strdup("shared files once") : mem_strdup("");
    put(sink, "total", "total", &all, note);
    return VERB_OK;
}

/* --- by the daemon */

static void put_row(struct sink *sink, const Pb__Checkpoint *row, bool parts, struct sums *all)
{
    struct sums sums = {.bytes = row->bytes};
    SCOPED_TEXT char *note =
        mem_printf("%s%s", enum_name(&pb__checkpoint__state__descriptor, (int)row->state),
                   row->pinned ? ", pinned" : "");
    for (size_t i = 0; i < row->n_parts; i++)
        sums.files += row->parts[i]->n_files;
    put(sink, "checkpoint", row->path, &sums, note);
    add_sums(all, &sums);
    for (size_t i = 0; parts && i < row->n_parts; i++) {
        const Pb__CheckpointPart *part = row->parts[i];
        struct sums of = {.files = part->n_files};
        SCOPED_TEXT char *what = mem_printf("%s/%s-%u", row->path, part->role, part->rank);
        for (size_t k = 0; k < part->n_files; k++)
            of.bytes += part->files[k]->bytes;
        put(sink, "part", what, &of, part->node);
    }
}

static int du_daemon(const struct config *config, const char *job, struct sink *sink)
{
    struct checkpoint_at_source source = {.flags = &config->flags};
    Pb__ListCheckpointsReply *reply;
    struct sums all = {0};
    int64_t id = 0;
    int code = VERB_OK;
    struct connect *connect = checkpoint_at_connect(&source, &code);
    if (!connect)
        return code;
    code = checkpoint_at_list(connect, job, CHECKPOINT_AT_LIST_MAX, &id, &reply);
    if (code == VERB_OK) {
        for (size_t i = 0; i < reply->n_checkpoints; i++)
            if (reply->checkpoints[i]->state != PB__CHECKPOINT__STATE__DELETED)
                put_row(sink, reply->checkpoints[i], config->parts, &all);
        put_job(sink, id, &all);
        protobuf_c_message_free_unpacked(&reply->base, NULL);
    }
    checkpoint_at_end(&source);
    return code;
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    enum output_format format;
    struct sink sink = {NULL, {0}};
    if (!output_parse(config->flags.connect.output, &format))
        return VERB_USAGE;
    if ((*config->flags.vault != 0) == (argc > 0)) {
        output_error("checkpoint du: either a JOB, or --vault DIR");
        return VERB_USAGE;
    }
    text_init(&sink.json, 0);
    if (format == OUTPUT_TABLE)
        sink.table = table_create(columns, COUNT_OF(columns));
    int code = argc > 0 ? du_daemon(config, argv[0], &sink) : du_vault(config, &sink);
    if (code == VERB_OK) {
        finish(&sink);
    } else {
        table_destroy(sink.table);
        text_fini(&sink.json);
    }
    return code;
}

const struct verb cmd_checkpoint_du = {
    .name = "checkpoint du",
    .args = "[JOB]",
    .summary = "Bytes by job, checkpoint and part; files with several names once in the total.",
    .examples = "  rondoctl checkpoint du charlm\n"
                "  rondoctl checkpoint du --vault /srv/vault --parts\n",
    .rows = rows,
    .config_size = sizeof(struct config),
    .operands_min = 0,
    .operands_max = 1,
    .run = run};
