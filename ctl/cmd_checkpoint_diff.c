/* cmd_checkpoint_diff.c - in which tensors two checkpoints differ. Loop thread. */
#include "base/mem.h"
#include "checkpoint/diff.h"
#include "checkpoint/json_text.h"
#include "ctl/checkpoint_at.h"
#include "ctl/cmd.h"
#include "ctl/meter.h"
#include "ctl/output.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct config {
    struct checkpoint_flags flags;
};

static const struct option rows[] = {CHECKPOINT_ROWS, {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};
static const struct table_column columns[] = {{"TENSOR", TABLE_SHRINK}, {"DTYPE", TABLE_LEFT},
                                              {"WHAT", TABLE_LEFT},     {"DIFFER", TABLE_RIGHT},
                                              {"OF", TABLE_RIGHT},      {"MAX ABS", TABLE_RIGHT}};

struct sink {
    struct table *table; /* NULL: json */
    struct text json;
    size_t count;
};

static const char *kind_text(enum diff_kind kind)
{
    static const char *const texts[] = {[DIFF_ONLY_FIRST] = "only in the first",
                                        [DIFF_ONLY_SECOND] = "only in the second",
                                        [DIFF_TYPE] = "another dtype",
                                        [DIFF_SHAPE] = "another shape",
                                        [DIFF_VALUES] = "values"};
    return texts[kind];
}

static void take_json(struct sink *sink, const struct diff_row *row,
                      const struct layout_tensor *tensor)
{
    static const char *const kinds[] = {[DIFF_ONLY_FIRST] = "ONLY_FIRST",
                                        [DIFF_ONLY_SECOND] = "ONLY_SECOND",
                                        [DIFF_TYPE] = "DTYPE",
                                        [DIFF_SHAPE] = "SHAPE",
                                        [DIFF_VALUES] = "VALUES"};
    text_add(&sink->json, sink->count ? ",\n  {\"tensor\": " : "\n  {\"tensor\": ");
    json_text_string(&sink->json, tensor->name, tensor->name_len);
    text_addf(&sink->json, ", \"kind\": \"%s\", \"dtype\": \"%s\"", kinds[row->kind],
              dtype_name(tensor->dtype));
    if (row->kind == DIFF_VALUES)
        text_addf(&sink->json, ", \"elements\": \"%" PRIu64 "\", \"differing\": \"%" PRIu64 "\"",
                  row->elements, row->differing);
    if (row->kind == DIFF_VALUES && row->has_max && isfinite(row->max_abs))
        text_addf(&sink->json, ", \"max_abs\": %.17g", row->max_abs);
    else if (row->kind == DIFF_VALUES && row->has_max)
        text_add(&sink->json, ", \"max_abs\": \"Infinity\"");
    text_add(&sink->json, "}");
}

static void take(void *arg, const struct diff_row *row)
{
    struct sink *sink = arg;
    const struct layout_tensor *tensor = row->first ? row->first : row->second;
    bool values = row->kind == DIFF_VALUES;
    if (!sink->table) {
        take_json(sink, row, tensor);
        sink->count++;
        return;
    }
    sink->count++;
    table_add(sink->table, tensor->name);
    table_add(sink->table, dtype_name(tensor->dtype));
    table_add(sink->table, kind_text(row->kind));
    if (!values) {
        for (int i = 0; i < 3; i++)
            table_add(sink->table, "");
        return;
    }
    table_addf(sink->table, "%" PRIu64, row->differing);
    table_addf(sink->table, "%" PRIu64, row->elements);
    if (row->has_max)
        table_addf(sink->table, "%.6g", row->max_abs);
    else
        table_add(sink->table, "");
}

static void finish(struct sink *sink, const struct diff_sum *sum)
{
    char size[32];
    text_bytes(sum->bytes, size, sizeof size);
    if (!sink->table) {
        printf("{\"differences\": [%s%s],\n \"tensors\": \"%" PRIu64 "\", \"same\": \"%" PRIu64
               "\", \"bytes\": \"%" PRIu64 "\"}\n",
               text_get(&sink->json), sink->count ? "\n" : "", sum->tensors, sum->same, sum->bytes);
        return;
    }
    if (sink->count)
        output_table_take(TAKE(sink->table));
    printf("%" PRIu64 " of %" PRIu64 " tensors are the same, bit for bit (%s compared)\n",
           sum->same, sum->tensors, size);
}

static enum status compare(const struct checkpoint_at *first, const struct checkpoint_at *second,
                           struct sink *sink, struct diff_sum *sum, struct error *err)
{
    SCOPED(reader_close) struct reader *one = NULL;
    SCOPED(reader_close) struct reader *other = NULL;
    const struct reader_options options = {.partial = true};
    struct meter meter;
    enum status st = reader_open(first->dir, first->path, &options, &one, err);
    if (st == STATUS_OK)
        st = reader_open(second->dir, second->path, &options, &other, err);
    if (st != STATUS_OK)
        return st;
    meter_begin(&meter, "compare", 0);
    meter_also(&meter, checkpoint_at_renew, first->source);
    st = diff_run(one, other, &meter.watcher, take, sink, sum, err);
    meter_end(&meter);
    return st;
}

static int diff(const struct checkpoint_at at[2], enum output_format format)
{
    struct sink sink = {0};
    struct diff_sum sum = {0};
    struct error err = {0};
    text_init(&sink.json, (size_t)512 << 20);
    if (format == OUTPUT_TABLE)
        sink.table = table_create(columns, COUNT_OF(columns));
    enum status st = compare(&at[0], &at[1], &sink, &sum, &err);
    if (st == STATUS_OK)
        finish(&sink, &sum);
    table_destroy(sink.table);
    text_fini(&sink.json);
    if (st != STATUS_OK)
        return checkpoint_at_fail("checkpoint diff", st, err.text);
    return sink.count ? VERB_NEGATIVE : VERB_OK;
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    struct checkpoint_at_source source = {.flags = &config->flags};
    struct checkpoint_at at[2] = {{0}, {0}};
    enum output_format format;
    int code = VERB_OK;
    if (!output_parse(config->flags.connect.output, &format))
        return VERB_USAGE;
    for (int i = 0; i < argc && code == VERB_OK; i++)
        code = checkpoint_at_find(&source, argv[i], &at[i]);
    for (int i = 0; i < argc && code == VERB_OK; i++)
        code = checkpoint_at_open(&source, &at[i]);
    if (code == VERB_OK)
        code = diff(at, format);
    for (int i = 0; i < argc; i++) {
        checkpoint_at_close(&source, &at[i]);
        checkpoint_at_fini(&at[i]);
    }
    checkpoint_at_end(&source);
    meter_last_word("checkpoint diff");
    return code;
}

const struct verb cmd_checkpoint_diff = {
    .name = "checkpoint diff",
    .args = "A B",
    .summary = "The tensors in which two checkpoints differ, and by how much. 1: they differ.",
    .examples = "  rondoctl checkpoint diff charlm@100 charlm@120\n"
                "  rondoctl checkpoint diff /old/job-7/step-120.1 /new/job-7/step-120.1 -o json\n",
    .rows = rows,
    .config_size = sizeof(struct config),
    .operands_min = 2,
    .operands_max = 2,
    .run = run};
