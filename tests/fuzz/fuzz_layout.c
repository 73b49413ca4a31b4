/* fuzz_layout.c - any bytes, and changed good ones, as layout.json. What is accepted comes back
 * from its printed bytes; what covers its tensors can be assigned, stays covered, and can be loaded
 * as it was declared. */
#include "base/mem.h"
#include "checkpoint/layout.h"
#include "checkpoint/plan.h"
#include "tests/fuzz/mutate.h"
#include <stdlib.h>
#include <string.h>

#define DOCUMENT_MAX 4096
#define PIECES_MAX   64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char good[] =
    "{\"format\":\"rondo-layout-1\",\"world\":4,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,4,8],[0,3,6]],\"ranks\":[[0,1],[1],[2,3],[0]]},"
    "{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[2,1]],[1,[0,1],[1,2]],[2,[1,2],[2,1]],"
    "[3,[2,0],[1,2]],[0,[1,1],[1,1]],[1,[1,1],[1,1]]]},"
    "{\"kind\":\"flat\",\"ranges\":[[0,0,6],[1,6,12],[2,12,18],[3,0,6]]},"
    "{\"kind\":\"grid\",\"cuts\":[],\"ranks\":[[0,1,2,3]]}],"
    "\"tensors\":[[\"a\",\"F32\",[8,6],0],[\"b\\u00e9\",\"I64\",[3,3],1],[\"c\",\"F4\",[4,4],2],"
    "[\"d\",\"U8\",[2,2,4],2],[\"step\",\"I64\",[],3]],\"aliases\":{\"tied\":\"a\"}}";

static void must(int condition)
{
    if (!condition)
        abort();
}

static void come_back(const struct layout_table *table)
{
    struct text printed;
    struct layout_table *again = NULL;

    text_init(&printed, 0);
    layout_table_print(table, &printed);
    must(layout_table_parse(text_get(&printed), printed.len, &again, NULL) == STATUS_OK);
    must(strcmp(layout_table_digest(table), layout_table_digest(again)) == 0);
    layout_table_destroy(again);
    text_fini(&printed);
}

static uint64_t bytes_of_rank(const struct layout_table *table, uint32_t rank)
{
    uint64_t bytes = 0;

    for (size_t t = 0; t < layout_table_count(table); t++) {
        struct layout_box boxes[PIECES_MAX];
        size_t count = layout_table_pieces(table, t, rank, boxes, PIECES_MAX);
        for (size_t i = 0; i < count && i < PIECES_MAX; i++)
            bytes += layout_box_bytes(&boxes[i], layout_table_at(table, t));
    }
    return bytes;
}

static void assign_and_plan(const struct layout_table *declared)
{
    struct layout_table *storage = NULL;

    must(layout_table_assign(declared, &storage, NULL) == STATUS_OK);
    must(layout_table_check_storage(storage, NULL) == STATUS_OK);
    come_back(storage);
    for (uint32_t rank = 0; rank < 4 && rank < layout_table_world(declared); rank++) {
        struct plan *plan = NULL;
        struct plan_cursor at = {0};
        struct plan_run run;
        uint64_t bytes = 0;
        must(plan_rank(storage, declared, rank, NULL, &plan, NULL) == STATUS_OK);
        while (plan_next(plan, &at, &run))
            bytes += plan_run_bytes(&run);
        must(bytes == plan_bytes(plan) && bytes == bytes_of_rank(declared, rank));
        plan_destroy(plan);
    }
    layout_table_destroy(storage);
}

static void feed(const void *bytes, size_t len)
{
    struct layout_table *table = NULL;

    if (layout_table_parse(bytes, len, &table, NULL) != STATUS_OK)
        return;
    come_back(table);
    if (layout_table_check(table, NULL) == STATUS_OK)
        assign_and_plan(table);
    layout_table_destroy(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t document[DOCUMENT_MAX];
    size_t len = sizeof(good) - 1;

    if (size == 0)
        return 0;
    if (data[0] == 0) {
        feed(data + 1, size - 1);
        return 0;
    }
    memcpy(document, good, len);
    mutate_apply(data + 1, size - 1, document, &len, sizeof(document));
    feed(document, len);
    return 0;
}
