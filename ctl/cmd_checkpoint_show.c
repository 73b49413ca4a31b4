/* cmd_checkpoint_show.c - one checkpoint: what it is of, where from, and its tensors. Loop thread.
 */
#include "base/mem.h"
#include "checkpoint/json_text.h"
#include "checkpoint/vault_list.h"
#include "ctl/checkpoint_at.h"
#include "ctl/checkpoint_tensors.h"
#include "ctl/cmd.h"
#include "ctl/output.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINEAGE_MAX = 20 };

struct config {
    struct checkpoint_flags flags;
    uint32_t limit;
    bool all;
};

static const struct option rows[] = {
    CHECKPOINT_ROWS,
    {"limit", OPT_U32, offsetof(struct config, limit), "50", 0, 1000000,
     "At most this many tensors."},
    {"all", OPT_BOOL, offsetof(struct config, all), NULL, 0, 0, "All tensors."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

struct lineage { /* what is known beside the row */
    int64_t parents[LINEAGE_MAX];
    size_t count;
    char *job; /* its name; NULL */
};

static void lineage_fini(struct lineage *lineage)
{
    mem_free(lineage->job);
}

/* --- where it comes from */

static int64_t parent_by_daemon(struct connect *connect, int64_t id)
{
    Pb__ShowCheckpointRequest request = PB__SHOW_CHECKPOINT_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.has_checkpoint = 1;
    request.checkpoint = id;
    if (connect_call(connect, "ShowCheckpoint", &request.base, &reply, NULL) != STATUS_OK)
        return 0; /* it is of a job that is known no longer */
    const Pb__CheckpointReply *of = (const Pb__CheckpointReply *)reply;
    int64_t parent = of->checkpoint ? of->checkpoint->parent : 0;
    protobuf_c_message_free_unpacked(reply, NULL);
    return parent;
}

static int64_t parent_by_list(const struct vault_list *list, int64_t id)
{
    for (size_t i = 0; i < list->count; i++) {
        const Pb__Checkpoint *row = list->entries[i].row;
        if (row && row->id == id)
            return row->parent;
    }
    return 0; /* it lies here no longer */
}

/* Where its forebears may lie: the vault that was named, or the directory of its job. */
static char *around(const struct checkpoint_at *at, const char *vault)
{
    if (*vault)
        return mem_strdup(vault);
    SCOPED_TEXT char *place = mem_printf("%s/..", at->dir);
    char *real = realpath(place, NULL);
    const char *name = real ? strrchr(real, '/') : NULL;
    if (name && strncmp(name, "/job-", 5) == 0)
        return real;
    mem_free(real);
    return NULL;
}

static void find_parents(struct checkpoint_at_source *source, const struct checkpoint_at *at,
                         struct lineage *lineage)
{
    SCOPED(vault_list_destroy) struct vault_list *list = NULL;
    int64_t parent = at->row->parent;
    SCOPED_TEXT char *place = at->offline && parent > 0 ? around(at, source->flags->vault) : NULL;
    if (place)
        (void)!vault_list_read(place, false, &list, NULL);
    while (parent > 0 && lineage->count < LINEAGE_MAX) {
        lineage->parents[lineage->count++] = parent;
        int64_t next = list              ? parent_by_list(list, parent)
                       : source->connect ? parent_by_daemon(source->connect, parent)
                                         : 0;
        parent = next < parent ? next : 0;
    }
}

static void find_job(struct connect *connect, int64_t job, struct lineage *lineage)
{
    Pb__ShowJobRequest request = PB__SHOW_JOB_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.has_job = 1;
    request.job = job;
    if (connect_call(connect, "ShowJob", &request.base, &reply, NULL) != STATUS_OK)
        return;
    const Pb__ShowJobReply *show = (const Pb__ShowJobReply *)reply;
    const Pb__JobSpec *spec = show->job ? show->job->spec : NULL;
    lineage->job = spec && spec->name ? mem_strdup(spec->name) : NULL;
    protobuf_c_message_free_unpacked(reply, NULL);
}

/* --- for people */

static void say(const char *key, const char *value)
{
    if (!value || !*value)
        return;
    printf("%-12s ", key);
    output_text("", value);
}

static void say_times(const Pb__Checkpoint *row)
{
    char at[32];
    const struct {
        const char *key;
        int64_t us;
    } times[] = {{"created", row->created_us},
                 {"committed", row->committed_us},
                 {"verified", row->verified_us}};
    for (size_t i = 0; i < COUNT_OF(times); i++) {
        output_time(times[i].us, at, sizeof at);
        if (times[i].us > 0)
            say(times[i].key, at);
    }
}

static void say_lineage(const Pb__Checkpoint *row, const struct lineage *lineage)
{
    struct text line;
    text_init(&line, 0);
    for (size_t i = 0; i < lineage->count; i++)
        text_addf(&line, "%s%" PRId64, i ? " <- " : "checkpoint ", lineage->parents[i]);
    if (lineage->count == LINEAGE_MAX)
        text_add(&line, " <- ...");
    say("parent", lineage->count ? text_get(&line) : "none: its attempt began at step 0");
    text_reset(&line);
    text_addf(&line, "%" PRId64 "%s%s%s", row->job, lineage->job ? " (" : "",
              lineage->job ? lineage->job : "", lineage->job ? ")" : "");
    text_addf(&line, ", attempt %u", row->attempt);
    say("job", text_get(&line));
    say("code", row->code);
    text_reset(&line);
    text_addf(&line, "step %" PRId64 ", %" PRId64 " samples (data cursor)", row->step,
              row->samples);
    say("at", text_get(&line));
    text_fini(&line);
}

static void say_keeping(const Pb__Checkpoint *row)
{
    char until[32];
    if (row->pinned)
        say("pinned", row->pin_note && *row->pin_note ? row->pin_note : "yes");
    for (size_t i = 0; i < row->n_holds; i++) {
        output_time(row->holds[i]->until_us, until, sizeof until);
        SCOPED_TEXT char *text = mem_printf("until %s by %s", until, row->holds[i]->holder);
        say("held", text);
    }
    for (size_t i = 0; i < row->n_copies; i++) {
        const Pb__ShardCopy *copy = row->copies[i];
        SCOPED_TEXT char *text =
            mem_printf("%s-%u on %s, vault %s: %s%s", copy->role, copy->rank, copy->node,
                       copy->vault ? copy->vault : "-",
                       enum_name(&pb__shard_copy__durability__descriptor, (int)copy->durability),
                       copy->lost ? ", lost" : "");
        say("copy", text);
    }
}

static void say_row(const struct checkpoint_at *at, const struct lineage *lineage)
{
    const Pb__Checkpoint *row = at->row;
    char size[32];
    text_bytes(row->bytes, size, sizeof size);
    SCOPED_TEXT char *id = mem_printf("%" PRId64, row->id);
    SCOPED_TEXT char *what = mem_printf(
        "%s, %u rank%s, %s in %u part%s",
        row->format == PB__CHECKPOINT__FORMAT__SHARDED ? "sharded" : "plain", row->world,
        row->world == 1 ? "" : "s", size, row->parts_expected, row->parts_expected == 1 ? "" : "s");
    say("checkpoint", id);
    say("state", at->offline ? CHECKPOINT_AT_SEALED
                             : enum_name(&pb__checkpoint__state__descriptor, (int)row->state));
    say("reason", row->reason);
    say_lineage(row, lineage);
    say("holds", what);
    say("vault", row->vault);
    say("node", row->node);
    say("path", row->path);
    say_times(row);
    say("manifest", row->manifest_digest);
    say("layout", row->layout_digest);
    say("identity", row->tree_digest);
    say_keeping(row);
}

/* --- for programs */

static void say_json(const struct checkpoint_at *at, const struct lineage *lineage,
                     const struct text *tensors)
{
    const char *code = at->row->code ? at->row->code : "";
    struct text out;
    text_init(&out, (size_t)1 << 30);
    text_add(&out, "{\"checkpoint\": ");
    text_format_json(&at->row->base, TEXT_FORMAT_COMPACT, &out);
    text_add(&out, ",\n \"parents\": [");
    for (size_t i = 0; i < lineage->count; i++)
        text_addf(&out, "%s\"%" PRId64 "\"", i ? ", " : "", lineage->parents[i]);
    text_add(&out, "],\n \"code\": ");
    json_text_string(&out, code, strlen(code));
    if (tensors->len)
        text_addf(&out, ",\n \"tensors\": %s", text_get(tensors));
    text_add(&out, "}\n");
    fwrite(text_get(&out), 1, out.len, stdout);
    text_fini(&out);
}

/* Its bytes may be elsewhere: then all but the tensors is shown. */
static int show(struct checkpoint_at_source *source, struct checkpoint_at *at,
                const struct config *config, enum output_format format)
{
    struct lineage lineage = {0};
    struct text tensors;
    bool sharded = at->row->format == PB__CHECKPOINT__FORMAT__SHARDED;
    size_t limit = config->all ? SIZE_MAX : config->limit;
    int code = VERB_OK;
    text_init(&tensors, (size_t)512 << 20);
    find_parents(source, at, &lineage);
    if (!at->offline)
        find_job(source->connect, at->row->job, &lineage);
    if (!at->offline && sharded && checkpoint_at_usable(at->row))
        code = checkpoint_at_locate(source, at);
    if (format == OUTPUT_TABLE)
        say_row(at, &lineage);
    if (code == VERB_OK && sharded && at->dir)
        code = format == OUTPUT_TABLE ? checkpoint_tensors_say(at, limit)
                                      : checkpoint_tensors_json(at, limit, &tensors);
    if (format == OUTPUT_TABLE && at->away)
        say("tensors", at->away);
    if (code == VERB_OK && format != OUTPUT_TABLE)
        say_json(at, &lineage, &tensors);
    text_fini(&tensors);
    lineage_fini(&lineage);
    return code;
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    struct checkpoint_at_source source = {.flags = &config->flags};
    struct checkpoint_at at;
    enum output_format format;
    (void)argc;
    if (!output_parse(config->flags.connect.output, &format))
        return VERB_USAGE;
    int code = checkpoint_at_find(&source, argv[0], &at);
    if (code == VERB_OK)
        code = show(&source, &at, config, format);
    checkpoint_at_fini(&at);
    checkpoint_at_end(&source);
    return code;
}

const struct verb cmd_checkpoint_show = {
    .name = "checkpoint show",
    .args = "CHECKPOINT",
    .summary = "One checkpoint: job, lineage, data cursor, digests, tensors and their layout.",
    .examples = "  rondoctl checkpoint show charlm@120\n"
                "  rondoctl checkpoint show /srv/vault/job-7/step-120.1 --all\n"
                "  rondoctl checkpoint show 7@120 --vault /srv/vault -o json\n",
    .rows = rows,
    .config_size = sizeof(struct config),
    .operands_min = 1,
    .operands_max = 1,
    .run = run};
