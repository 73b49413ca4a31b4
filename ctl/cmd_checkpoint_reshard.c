/* cmd_checkpoint_reshard.c - copies a checkpoint into another layout. Loop thread. */
#include "base/mem.h"
#include "checkpoint/layout_mesh.h"
#include "checkpoint/reshard.h"
#include "ctl/checkpoint_at.h"
#include "ctl/cmd.h"
#include "ctl/meter.h"
#include "ctl/output.h"
#include "ctl/written.h"
#include <stdio.h>
#include <string.h>

enum { RULES_MAX = 1000 };

struct config {
    struct checkpoint_flags flags;
    char *to;
    struct option_list rule;
};

static const struct option rows[] = {
    CHECKPOINT_ROWS,
    {"to", OPT_TEXT, offsetof(struct config, to), NULL, 0, 0,
     "The ranks: a mesh as \"data=2,tensor=4\", or their number."},
    {"rule", OPT_LIST, offsetof(struct config, rule), NULL, 0, 0,
     "Which dims axes cut, for names: \"*.qkv.weight=0:tensor\"; may be repeated."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

/* A number of ranks is a mesh of one axis, which cuts. */
static enum status parse_mesh(const char *to, struct layout_mesh *out, struct error *err)
{
    uint64_t ranks;
    SCOPED_TEXT char *mesh = NULL;
    if (!text_to_u64(to, 1, LAYOUT_WORLD_MAX, &ranks))
        return layout_mesh_parse(to, out, err);
    mesh = mem_printf("ranks=%s", to);
    return layout_mesh_parse(mesh, out, err);
}

static enum status parse_rules(const struct config *config, const struct layout_mesh *mesh,
                               struct layout_mesh_rule *rules, struct error *err)
{
    enum status st = STATUS_OK;
    for (size_t i = 0; i < config->rule.count && st == STATUS_OK; i++) {
        st = layout_mesh_rule_parse(mesh, config->rule.items[i], &rules[i], err);
        if (st != STATUS_OK)
            (void)error_wrap(err, "--rule %.60s", config->rule.items[i]);
    }
    return st;
}

/* What is wrong with the words needs no checkpoint to be said. */
static int parse(const struct config *config, struct layout_mesh *mesh,
                 struct layout_mesh_rule *rules)
{
    struct error err = {0};
    enum status st = parse_mesh(config->to, mesh, &err);
    if (st == STATUS_OK)
        st = parse_rules(config, mesh, rules, &err);
    if (st == STATUS_OK)
        return VERB_OK;
    output_error("checkpoint reshard: %s", err.text);
    return VERB_USAGE;
}

static enum status storage_of(const struct layout_table *like, const struct layout_mesh *mesh,
                              const struct layout_mesh_rule *rules, size_t count,
                              struct layout_table **out, struct error *err)
{
    SCOPED(layout_table_destroy) struct layout_table *declared = NULL;
    enum status st = layout_mesh_table(mesh, rules, count, like, &declared, err);
    return st == STATUS_OK ? layout_table_assign(declared, out, err) : st;
}

static enum status copy(const struct checkpoint_at *at, const char *target,
                        const struct layout_mesh *mesh, const struct layout_mesh_rule *rules,
                        size_t count, struct written *written, struct error *err)
{
    SCOPED(reader_close) struct reader *reader = NULL;
    SCOPED(layout_table_destroy) struct layout_table *storage = NULL;
    const struct reader_options options = {.partial = true};
    struct meter meter;
    enum status st = reader_open(at->dir, at->path, &options, &reader, err);
    if (st == STATUS_OK)
        st = storage_of(reader_layout(reader), mesh, rules, count, &storage, err);
    if (st != STATUS_OK)
        return st;
    meter_begin(&meter, "reshard", at->row->bytes);
    meter_also(&meter, checkpoint_at_renew, at->source);
    st = reshard_copy(reader, storage, target, &meter.watcher, written->digest, err);
    meter_end(&meter);
    written->tensors = layout_table_count(storage);
    written->ranks = layout_table_world(storage);
    written->bytes = meter.done;
    return st;
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    struct checkpoint_at_source source = {.flags = &config->flags};
    SCOPED(mem_free) void *rules = NULL;
    struct layout_mesh mesh;
    struct written written = {.what = "resharded", .target = argv[1]};
    struct checkpoint_at at;
    struct error err = {0};
    (void)argc;
    if (!output_parse(config->flags.connect.output, &written.format))
        return VERB_USAGE;
    if (!*config->to || config->rule.count > RULES_MAX) {
        output_error(*config->to ? "checkpoint reshard: too many rules"
                                 : "checkpoint reshard: --to says for which ranks, as "
                                   "\"data=2,tensor=4\" or 8");
        return VERB_USAGE;
    }
    rules = mem_array(config->rule.count + 1, sizeof(struct layout_mesh_rule));
    int code = parse(config, &mesh, rules);
    if (code != VERB_OK)
        return code;
    code = checkpoint_at_find(&source, argv[0], &at);
    if (code == VERB_OK)
        code = checkpoint_at_open(&source, &at);
    if (code == VERB_OK) {
        enum status st = copy(&at, argv[1], &mesh, rules, config->rule.count, &written, &err);
        code = st == STATUS_OK ? written_say(&written)
                               : checkpoint_at_fail("checkpoint reshard", st, err.text);
    }
    checkpoint_at_close(&source, &at);
    checkpoint_at_fini(&at);
    checkpoint_at_end(&source);
    meter_last_word("checkpoint reshard");
    return code;
}

const struct verb cmd_checkpoint_reshard = {
    .name = "checkpoint reshard",
    .args = "CHECKPOINT DIRECTORY",
    .summary = "Copies one into the files of other ranks; a new, sealed checkpoint.",
    .examples =
        "  rondoctl checkpoint reshard charlm@120 ./on-8 --to data=2,tensor=4\n"
        "  rondoctl checkpoint reshard ./step-120 ./on-3 --to 3\n"
        "  rondoctl checkpoint reshard 12 ./on-4 --to tensor=4 --rule '*.out.weight=1:tensor'\n",
    .rows = rows,
    .config_size = sizeof(struct config),
    .operands_min = 2,
    .operands_max = 2,
    .run = run};
