/* cmd_checkpoint_export.c - checkpoints for other programs, and theirs for us. Loop thread. */
#include "base/mem.h"
#include "checkpoint/export_dcp.h"
#include "checkpoint/export_hf.h"
#include "checkpoint/import_hf.h"
#include "ctl/checkpoint_at.h"
#include "ctl/cmd.h"
#include "ctl/meter.h"
#include "ctl/output.h"
#include "ctl/size_arg.h"
#include "ctl/written.h"
#include <stdio.h>
#include <string.h>

struct config {
    struct checkpoint_flags flags;
    char *as, *prefix, *max_shard_bytes;
};
struct import_config {
    struct checkpoint_flags flags;
    char *prefix;
    int64_t step;
};

static const struct option export_rows[] = {
    CHECKPOINT_ROWS,
    {"as", OPT_TEXT, offsetof(struct config, as), "hf", 0, 0,
     "hf: whole tensors as Hugging Face names them; dcp: shards for PyTorch's HF storage reader."},
    {"prefix", OPT_TEXT, offsetof(struct config, prefix), NULL, 0, 1024,
     "hf: only tensors whose names begin so (\"model.\"), written without it."},
    {"max_shard_bytes", OPT_TEXT, offsetof(struct config, max_shard_bytes), "5GB", 0, 0,
     "hf: files no larger than this, as 500MB or 2GiB; a longer tensor has its own."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};
static const struct option import_rows[] = {
    CHECKPOINT_ROWS,
    {"prefix", OPT_TEXT, offsetof(struct import_config, prefix), NULL, 0, 1024,
     "Put before every name (\"model.\")."},
    {"step", OPT_I64, offsetof(struct import_config, step), "0", 0, INT64_MAX,
     "The step that the checkpoint says."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

/* --- out */

static enum status export_hf(struct reader *reader, const struct config *config, uint64_t max,
                             const struct watcher *watcher, struct written *written,
                             struct error *err)
{
    const struct export_hf_options options = {*config->prefix ? config->prefix : NULL, max,
                                              watcher};
    struct export_hf_result result = {0};
    enum status st = export_hf_write(reader, written->target, &options, &result, err);
    written->bytes = result.bytes;
    written->files = result.files;
    written->tensors = result.tensors;
    return st;
}

static enum status export_dcp(const struct checkpoint_at *at, struct reader *reader,
                              const struct watcher *watcher, struct written *written,
                              struct error *err)
{
    struct export_dcp_result result = {0};
    enum status st =
        export_dcp_write(at->dir, at->path, reader, written->target, watcher, &result, err);
    written->bytes = result.bytes;
    written->files = result.files;
    written->tensors = layout_table_count(reader_layout(reader));
    return st;
}

static int write_out(const struct checkpoint_at *at, const struct config *config, uint64_t max,
                     struct written *written)
{
    SCOPED(reader_close) struct reader *reader = NULL;
    const struct reader_options options = {.partial = true};
    struct error err = {0};
    struct meter meter;
    enum status st = reader_open(at->dir, at->path, &options, &reader, &err);
    if (st == STATUS_OK) {
        meter_begin(&meter, "export", at->row->bytes);
        meter_also(&meter, checkpoint_at_renew, at->source);
        st = strcmp(config->as, "dcp") == 0
                 ? export_dcp(at, reader, &meter.watcher, written, &err)
                 : export_hf(reader, config, max, &meter.watcher, written, &err);
        meter_end(&meter);
    }
    return st == STATUS_OK ? written_say(written)
                           : checkpoint_at_fail("checkpoint export", st, err.text);
}

static int check_export(const struct config *config, uint64_t *max)
{
    bool dcp = strcmp(config->as, "dcp") == 0;
    if (!dcp && strcmp(config->as, "hf") != 0)
        output_error("checkpoint export: --as: '%.40s' is neither hf nor dcp", config->as);
    else if (dcp && *config->prefix)
        output_error("checkpoint export: --prefix is for --as hf; shards go out as they are");
    else if (!size_arg_parse(config->max_shard_bytes, max) || *max < 1)
        output_error("checkpoint export: --max-shard-bytes: '%.40s' is no size such as 5GB",
                     config->max_shard_bytes);
    else
        return VERB_OK;
    return VERB_USAGE;
}

static int run_export(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    struct checkpoint_at_source source = {.flags = &config->flags};
    struct written written = {.what = "exported", .target = argv[1]};
    struct checkpoint_at at;
    uint64_t max = 0;
    (void)argc;
    if (!output_parse(config->flags.connect.output, &written.format) ||
        check_export(config, &max) != VERB_OK)
        return VERB_USAGE;
    int code = checkpoint_at_find(&source, argv[0], &at);
    if (code == VERB_OK)
        code = checkpoint_at_open(&source, &at);
    if (code == VERB_OK)
        code = write_out(&at, config, max, &written);
    checkpoint_at_close(&source, &at);
    checkpoint_at_fini(&at);
    checkpoint_at_end(&source);
    meter_last_word("checkpoint export");
    return code;
}

/* --- in */

static int run_import(const void *arg, int argc, char **argv)
{
    const struct import_config *config = arg;
    struct written written = {.what = "imported", .ranks = 1};
    struct import_hf_result result = {0};
    struct error err = {0};
    struct meter meter;
    (void)argc;
    if (!output_parse(config->flags.connect.output, &written.format))
        return VERB_USAGE;
    SCOPED_TEXT char *target = *config->flags.vault
                                   ? mem_printf("%s/%s", config->flags.vault, argv[1])
                                   : mem_strdup(argv[1]);
    written.target = target;
    meter_begin(&meter, "import", 0);
    const struct import_hf_options options = {*config->prefix ? config->prefix : NULL, config->step,
                                              &meter.watcher};
    enum status st = import_hf_read(argv[0], target, &options, &result, &err);
    meter_end(&meter);
    written.bytes = result.bytes;
    written.files = result.files;
    written.tensors = result.tensors;
    int code = st == STATUS_OK ? written_say(&written)
                               : checkpoint_at_fail("checkpoint import", st, err.text);
    meter_last_word("checkpoint import");
    return code;
}

const struct verb cmd_checkpoint_export = {
    .name = "checkpoint export",
    .args = "CHECKPOINT DIRECTORY",
    .summary = "Writes the tensors for Hugging Face's tools or PyTorch; every byte is checked.",
    .examples = "  rondoctl checkpoint export charlm@120 ./charlm-hf --prefix model.\n"
                "  rondoctl checkpoint export ./step-120 ./out --max-shard-bytes 500MB\n"
                "  rondoctl checkpoint export 12 ./for-dcp --as dcp\n",
    .rows = export_rows,
    .config_size = sizeof(struct config),
    .operands_min = 2,
    .operands_max = 2,
    .run = run_export};

const struct verb cmd_checkpoint_import = {
    .name = "checkpoint import",
    .args = "SOURCE DIRECTORY",
    .summary = "Makes a checkpoint of a safetensors file or a Hugging Face directory.",
    .examples = "  rondoctl checkpoint import ./llama ./step-0 --prefix model.\n"
                "  rondoctl checkpoint import model.safetensors import/step-0 --vault /srv/vault\n",
    .rows = import_rows,
    .config_size = sizeof(struct import_config),
    .operands_min = 2,
    .operands_max = 2,
    .run = run_import};
