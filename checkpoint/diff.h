/* diff.h - in which tensors two checkpoints differ, and by how much. Layouts do not matter.
 *
 * Blocking; reads both at once, a window each (reader_stream.h), with a thread for the second. */
#pragma once
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/watcher.h"

enum diff_kind { DIFF_ONLY_FIRST, DIFF_ONLY_SECOND, DIFF_TYPE, DIFF_SHAPE, DIFF_VALUES };
struct diff_row {
    enum diff_kind kind;
    const struct layout_tensor *first, *second; /* NULL where it is not; loans */
    /* VALUES only: */
    uint64_t elements, differing; /* that differ in any bit */
    bool has_max;                 /* dtypes that are numbers of whole bytes of at least 8 bits */
    double max_abs;               /* of the difference; infinity where one side is no number */
};
struct diff_sum {
    uint64_t tensors, same, bytes; /* compared */
};
typedef void (*diff_fn)(void *arg, const struct diff_row *row);

/* Both opened with options.partial. fn gets the tensors that differ, by name; on the caller's
 * thread. watcher and out may be NULL. */
enum status diff_run(struct reader *first, struct reader *second, const struct watcher *watcher,
                     diff_fn fn, void *arg, struct diff_sum *out, struct error *err) MUST_CHECK;
