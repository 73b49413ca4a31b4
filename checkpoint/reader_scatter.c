/* reader_scatter.c - see reader_scatter.h. Loops are the outermost first; the steps of a source
 * never grow inwards, so that each level's extents lie one behind the other. */
#include "checkpoint/reader_scatter.h"

#include <string.h>

#include "checkpoint/digest.h"

/* From so many bytes on a copy goes past the caches. */
#define STREAM_MIN 16384u

static uint64_t extent_below(const struct plan_run *run, uint32_t level)
{
    uint64_t extent = run->bytes;

    for (uint32_t i = run->loops; i-- > level;)
        extent += (run->loop[i].count - 1) * run->loop[i].source_step;
    return extent;
}

uint64_t reader_scatter_extent(const struct plan_run *run)
{
    return extent_below(run, 0);
}

static void mark(const struct plan_run *run, uint32_t level, uint64_t begin, uint64_t block,
                 unsigned char *bits)
{
    uint64_t gap =
        level < run->loops ? run->loop[level].source_step - extent_below(run, level + 1) : 0;

    if (level < run->loops && (gap >= block || level + 1 < run->loops)) {
        for (uint64_t i = 0; i < run->loop[level].count; i++)
            mark(run, level + 1, begin + i * run->loop[level].source_step, block, bits);
        return;
    }
    uint64_t end = begin + extent_below(run, level); /* no gap in it holds a block */
    for (uint64_t i = begin / block; i <= (end - 1) / block; i++)
        bits[i / 8] |= (unsigned char)(1U << (i % 8));
}

void reader_scatter_mark(const struct plan_run *run, uint64_t base, uint64_t block_bytes,
                         unsigned char *bits)
{
    mark(run, 0, base + run->source_at, block_bytes, bits);
}

struct scatter {
    const struct plan_run *run;
    uint64_t at, end; /* of the file */
    const unsigned char *bytes;
    unsigned char *piece;
};

static void copy_row(const struct scatter *scatter, uint64_t source, uint64_t target)
{
    uint64_t begin = source > scatter->at ? source : scatter->at;
    uint64_t end = source + scatter->run->bytes;

    end = end < scatter->end ? end : scatter->end;
    unsigned char *to = scatter->piece + target + (begin - source);
    const unsigned char *from = scatter->bytes + (begin - scatter->at);
    if (end - begin >= STREAM_MIN)
        (void)digest_crc32c_copy(0, to, from, (size_t)(end - begin));
    else
        memcpy(to, from, (size_t)(end - begin));
}

static void scatter_level(const struct scatter *scatter, uint32_t level, uint64_t source,
                          uint64_t target)
{
    if (level == scatter->run->loops) {
        copy_row(scatter, source, target);
        return;
    }
    const struct plan_loop *loop = &scatter->run->loop[level];
    uint64_t extent = extent_below(scatter->run, level + 1);
    uint64_t first =
        source + extent > scatter->at ? 0 : (scatter->at - source - extent) / loop->source_step + 1;
    for (uint64_t i = first; i < loop->count; i++) {
        uint64_t begin = source + i * loop->source_step;
        if (begin >= scatter->end)
            return;
        scatter_level(scatter, level + 1, begin, target + i * loop->target_step);
    }
}

void reader_scatter_copy(const struct plan_run *run, uint64_t base, uint64_t at,
                         const unsigned char *bytes, size_t len, unsigned char *piece)
{
    const struct scatter scatter = {
        .run = run, .at = at, .end = at + len, .bytes = bytes, .piece = piece};
    uint64_t source = base + run->source_at;

    if (source < at + len && source + reader_scatter_extent(run) > at)
        scatter_level(&scatter, 0, source, run->target_at);
}

unsigned char *reader_scatter_place(const struct plan_run *run, uint64_t base, uint64_t at,
                                    size_t len, unsigned char *piece)
{
    uint64_t source = base + run->source_at, target = run->target_at;

    if (run->bytes < len || at < source)
        return NULL;
    for (uint32_t i = 0; i < run->loops; i++) {
        uint64_t turn = (at - source) / run->loop[i].source_step;
        if (turn >= run->loop[i].count)
            return NULL;
        source += turn * run->loop[i].source_step;
        target += turn * run->loop[i].target_step;
    }
    return at - source + len <= run->bytes ? piece + target + (at - source) : NULL;
}
