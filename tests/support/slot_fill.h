/* slot_fill.h - stands in for librondo: fills a slot as a rank of two would, with one tensor whose
 * rows are split between them. For tests of agents and for simulated workers. */
#pragma once
#include "base/mem.h"
#include "checkpoint/shard_image.h"
#include "checkpoint/slot.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOT_FILL_BYTES ((uint64_t)1 << 20)
#define SLOT_FILL_ROWS  64u /* of each rank */
#define SLOT_FILL_COLS  1024u

enum slot_fill_fault {
    SLOT_FILL_GOOD,
    SLOT_FILL_FLIPPED,  /* a byte of the shard is not what its block's sum says */
    SLOT_FILL_HOLE,     /* the layout leaves rows out */
    SLOT_FILL_UNFILLED, /* its worker died before FILLED */
    SLOT_FILL_NAMED,    /* with a file that has no business there */
};

static inline struct layout_table *slot_fill_layout(uint32_t world, bool hole)
{
    char json[1024];
    struct layout_table *table = NULL;
    size_t len = 0;
    len += (size_t)snprintf(json + len, sizeof json - len,
                            "{\"format\":\"rondo-layout-1\",\"world\":%u,\"layouts\":[{\"kind\":"
                            "\"boxes\",\"boxes\":[",
                            world);
    for (uint32_t rank = 0; rank < world; rank++)
        len += (size_t)snprintf(json + len, sizeof json - len, "%s[%u,[%u,0],[%u,%u]]",
                                rank ? "," : "", rank, rank * SLOT_FILL_ROWS,
                                SLOT_FILL_ROWS - (hole && rank == 0), SLOT_FILL_COLS);
    len += (size_t)snprintf(json + len, sizeof json - len,
                            "]}],\"tensors\":[[\"w\",\"F32\",[%u,%u],0]],\"aliases\":{}}",
                            world * SLOT_FILL_ROWS, SLOT_FILL_COLS);
    if (layout_table_parse(json, len, &table, NULL) != STATUS_OK)
        return NULL;
    return table;
}

static inline void *slot_fill_add(struct slot_head *head, const char *name, uint64_t bytes)
{
    uint64_t at = 0;
    return slot_add(head, name, bytes, &at, NULL) == STATUS_OK ? (char *)head + at : NULL;
}

/* Rank's own part of step; the value of each element is the step. False: it did not go. */
static inline bool slot_fill_image(struct slot_head *head, const struct layout_table *table,
                                   uint32_t rank, int64_t step)
{
    struct shard_image *image = NULL;
    struct text layout;
    bool good = shard_image_create(table, rank, &image, NULL) == STATUS_OK;
    if (!good)
        return false;
    float *values = mem_array(SLOT_FILL_ROWS * SLOT_FILL_COLS, sizeof *values);
    for (size_t i = 0; i < (size_t)SLOT_FILL_ROWS * SLOT_FILL_COLS; i++)
        values[i] = (float)step;
    const void *pieces[] = {values};
    void *files[] = {slot_fill_add(head, shard_image_name(image, 0), shard_image_bytes(image, 0))};
    good = files[0] && shard_image_fill(image, table, pieces, files, NULL) == STATUS_OK;
    const struct block_table *blocks = shard_image_blocks(image);
    const uint64_t sizes[] = {shard_image_bytes(image, 0)};
    void *sums = good ? slot_fill_add(head, SLOT_BLOCKS_NAME, block_table_bytes(sizes, 1)) : NULL;
    void *state = slot_fill_add(head, SLOT_STATE_NAME, 2);
    text_init(&layout, 0);
    layout_table_print(table, &layout);
    void *where = slot_fill_add(head, SLOT_LAYOUT_NAME, layout.len);
    good = good && sums && state && where;
    if (good) {
        block_table_print(blocks, sums);
        memcpy(state, "{}", 2);
        memcpy(where, text_get(&layout), layout.len);
    }
    text_fini(&layout);
    mem_free(values);
    shard_image_destroy(image);
    return good;
}

/* Fills the slot at path, which has SLOT_FILL_BYTES. */
static inline bool slot_fill_file(const char *path, uint32_t world, uint32_t rank, int64_t step,
                                  int64_t samples, enum slot_fill_fault fault)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct slot_head *head =
        fd < 0 ? MAP_FAILED
               : mmap(NULL, SLOT_FILL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    bool good = head != MAP_FAILED;
    if (good) {
        struct layout_table *table = slot_fill_layout(world, fault == SLOT_FILL_HOLE);
        slot_begin(head, SLOT_FILL_BYTES, step);
        good = table && slot_fill_image(head, table, rank, step);
        if (good && fault == SLOT_FILL_FLIPPED)
            ((char *)head)[head->files[0].offset + head->files[0].bytes - 1] ^= 1;
        if (good && fault == SLOT_FILL_NAMED)
            good = slot_fill_add(head, "manifest.json", 1) != NULL;
        if (good && fault != SLOT_FILL_UNFILLED)
            slot_fill(head, samples, layout_table_digest(table));
        layout_table_destroy(table);
        (void)munmap(head, SLOT_FILL_BYTES);
    }
    if (fd >= 0)
        (void)close(fd);
    return good;
}
