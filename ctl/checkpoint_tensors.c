#include "ctl/checkpoint_tensors.h"
#include "base/mem.h"
#include "checkpoint/json_text.h"
#include "checkpoint/reader.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BOXES_MAX = 64 };

static const struct table_column columns[] = {{"TENSOR", TABLE_SHRINK},
                                              {"DTYPE", TABLE_LEFT},
                                              {"SHAPE", TABLE_LEFT},
                                              {"SIZE", TABLE_RIGHT},
                                              {"LAYOUT", TABLE_SHRINK}};

struct cut { /* how a tensor is stored */
    uint64_t pieces;
    uint32_t ranks, first_rank;
    bool dims[LAYOUT_DIMS_MAX]; /* that are cut */
};

static void cut_of(const struct layout_table *table, size_t tensor, struct cut *out)
{
    const struct layout_tensor *row = layout_table_at(table, tensor);
    struct layout_box boxes[BOXES_MAX];
    *out = (struct cut){0};
    for (uint32_t rank = 0; rank < layout_table_world(table); rank++) {
        size_t count = layout_table_pieces(table, tensor, rank, boxes, BOXES_MAX);
        if (count && out->ranks++ == 0)
            out->first_rank = rank;
        out->pieces += count;
        for (size_t i = 0; i < count && i < BOXES_MAX; i++)
            for (uint32_t d = 0; d < row->dims; d++)
                out->dims[d] = out->dims[d] || boxes[i].size[d] < row->shape[d];
    }
}

void checkpoint_tensors_layout(const struct layout_table *table, size_t tensor, struct text *out)
{
    struct cut cut;
    bool any = false;
    cut_of(table, tensor, &cut);
    if (cut.pieces == 0) {
        text_add(out, "empty");
        return;
    }
    if (cut.pieces == 1) {
        text_addf(out, "whole on rank %u", cut.first_rank);
        return;
    }
    text_addf(out, "%" PRIu64 " pieces on %u rank%s, dim", cut.pieces, cut.ranks,
              cut.ranks == 1 ? "" : "s");
    for (uint32_t d = 0; d < LAYOUT_DIMS_MAX; d++)
        if (cut.dims[d]) {
            text_addf(out, "%s%u", any ? " " : "s ", d);
            any = true;
        }
}

static void add_shape(const struct layout_tensor *tensor, const char *between, struct text *out)
{
    for (uint32_t d = 0; d < tensor->dims; d++)
        text_addf(out, "%s%" PRIu64, d ? between : "", tensor->shape[d]);
}

static void add(struct table *table, const struct layout_table *layouts, size_t index)
{
    const struct layout_tensor *tensor = layout_table_at(layouts, index);
    struct text text;
    char size[32];
    text_init(&text, 0);
    table_add(table, tensor->name);
    table_add(table, dtype_name(tensor->dtype));
    add_shape(tensor, " x ", &text);
    table_add(table, tensor->dims ? text_get(&text) : "scalar");
    text_bytes(layout_tensor_bytes(tensor), size, sizeof size);
    table_add(table, size);
    text_reset(&text);
    checkpoint_tensors_layout(layouts, index, &text);
    table_add(table, text_get(&text));
    text_fini(&text);
}

static void add_json(const struct layout_table *layouts, size_t index, struct text *out)
{
    const struct layout_tensor *tensor = layout_table_at(layouts, index);
    struct cut cut;
    cut_of(layouts, index, &cut);
    text_add(out, index ? ",\n  {\"name\": " : "\n  {\"name\": ");
    json_text_string(out, tensor->name, tensor->name_len);
    text_addf(out, ", \"dtype\": \"%s\", \"shape\": [", dtype_name(tensor->dtype));
    add_shape(tensor, ", ", out);
    text_addf(out, "], \"bytes\": \"%" PRIu64 "\", \"pieces\": %" PRIu64 ", \"ranks\": %u}",
              layout_tensor_bytes(tensor), cut.pieces, cut.ranks);
}

static int open_reader(const struct checkpoint_at *at, struct reader **out)
{
    const struct reader_options options = {.partial = true};
    struct error err = {0};
    enum status st = reader_open(at->dir, at->path, &options, out, &err);
    return st == STATUS_OK ? VERB_OK : checkpoint_at_fail("checkpoint show", st, err.text);
}

static void say_aliases(const struct layout_table *layouts, size_t limit)
{
    for (size_t i = 0; i < layout_table_alias_count(layouts) && i < limit; i++) {
        size_t tensor;
        const char *name = layout_table_alias_at(layouts, i, &tensor);
        SCOPED_TEXT char *line =
            mem_printf("%s is %s", name, layout_table_at(layouts, tensor)->name);
        output_text("", line);
    }
}

int checkpoint_tensors_say(const struct checkpoint_at *at, size_t limit)
{
    SCOPED(reader_close) struct reader *reader = NULL;
    uint64_t bytes = 0;
    char size[32];
    int code = open_reader(at, &reader);
    if (code != VERB_OK)
        return code;
    const struct layout_table *layouts = reader_layout(reader);
    size_t count = layout_table_count(layouts), shown = count < limit ? count : limit;
    struct table *table = table_create(columns, COUNT_OF(columns));
    for (size_t i = 0; i < count; i++)
        bytes += layout_tensor_bytes(layout_table_at(layouts, i));
    for (size_t i = 0; i < shown; i++)
        add(table, layouts, i);
    printf("\n");
    output_table_take(table);
    say_aliases(layouts, limit);
    text_bytes(bytes, size, sizeof size);
    printf("%zu tensor%s, %s", count, count == 1 ? "" : "s", size);
    if (shown < count)
        printf("; %zu more: --all", count - shown);
    printf("\n");
    return VERB_OK;
}

int checkpoint_tensors_json(const struct checkpoint_at *at, size_t limit, struct text *out)
{
    SCOPED(reader_close) struct reader *reader = NULL;
    int code = open_reader(at, &reader);
    if (code != VERB_OK)
        return code;
    const struct layout_table *layouts = reader_layout(reader);
    text_add(out, "[");
    for (size_t i = 0; i < layout_table_count(layouts) && i < limit; i++)
        add_json(layouts, i, out);
    text_add(out, "]");
    return VERB_OK;
}
