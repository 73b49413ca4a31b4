/* diff.c - in which tensors two checkpoints differ. See diff.h. */
#include "checkpoint/diff.h"
#include "checkpoint/diff_values.h"
#include "checkpoint/reader_stream.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct name { /* a tensor of either side */
    const struct layout_tensor *first, *second;
    size_t first_index, second_index;
};
struct diff {
    struct reader *first, *second;
    const struct watcher *watcher;
    diff_fn fn;
    void *arg;
    struct name *names;
    size_t count;
    struct reader_stream_piece *first_pieces, *second_pieces;
    size_t *piece_name, pieces_count;
    /* Both streams cut alike: the second thread offers a run, the first compares it. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const void *offered; /* NULL: nothing */
    size_t offered_len;
    bool ended; /* by either side */
    enum status second_st;
    struct error second_err;
    /* the tensor at hand */
    size_t piece;
    struct diff_row row;
    struct diff_sum sum;
};

/* --- which tensors */

static const struct layout_tensor *tensor_of(const struct name *name)
{
    return name->first ? name->first : name->second;
}

static int order_names(const void *a, const void *b)
{
    return strcmp(tensor_of(a)->name, tensor_of(b)->name);
}

static bool same_form(const struct name *name)
{
    return name->first && name->second && name->first->dtype == name->second->dtype &&
           name->first->dims == name->second->dims &&
           memcmp(name->first->shape, name->second->shape,
                  name->first->dims * sizeof(name->first->shape[0])) == 0;
}

static void pair_names(struct diff *diff)
{
    const struct layout_table *a = reader_layout(diff->first), *b = reader_layout(diff->second);
    size_t other;

    diff->names = mem_array(layout_table_count(a) + layout_table_count(b) + 1, sizeof(struct name));
    for (size_t i = 0; i < layout_table_count(a); i++) {
        struct name *name = &diff->names[diff->count++];
        name->first = layout_table_at(a, i);
        name->first_index = i;
        if (layout_table_find(b, name->first->name, name->first->name_len, &other)) {
            name->second = layout_table_at(b, other);
            name->second_index = other;
        }
    }
    for (size_t i = 0; i < layout_table_count(b); i++) {
        const struct layout_tensor *tensor = layout_table_at(b, i);
        if (!layout_table_find(a, tensor->name, tensor->name_len, &other))
            diff->names[diff->count++] = (struct name){.second = tensor, .second_index = i};
    }
    qsort(diff->names, diff->count, sizeof(*diff->names), order_names);
}

static void choose_pieces(struct diff *diff)
{
    diff->first_pieces = mem_array(diff->count + 1, sizeof(*diff->first_pieces));
    diff->second_pieces = mem_array(diff->count + 1, sizeof(*diff->second_pieces));
    diff->piece_name = mem_array(diff->count + 1, sizeof(*diff->piece_name));
    for (size_t i = 0; i < diff->count; i++) {
        const struct name *name = &diff->names[i];
        if (!same_form(name))
            continue;
        size_t piece = diff->pieces_count++;
        diff->piece_name[piece] = i;
        diff->first_pieces[piece].tensor = name->first_index;
        diff->second_pieces[piece].tensor = name->second_index;
        diff->first_pieces[piece].box = diff->second_pieces[piece].box =
            reader_stream_whole(name->first);
    }
}

/* --- the second side's thread */

static enum status offer(void *arg, size_t piece, uint64_t at, const void *bytes, size_t len,
                         struct error *err)
{
    struct diff *diff = arg;

    (void)piece;
    (void)at;
    pthread_mutex_lock(&diff->lock);
    diff->offered = bytes;
    diff->offered_len = len;
    pthread_cond_broadcast(&diff->changed);
    while (diff->offered && !diff->ended)
        pthread_cond_wait(&diff->changed, &diff->lock);
    bool ended = diff->ended;
    pthread_mutex_unlock(&diff->lock);
    return ended ? error_set(err, STATUS_CANCELLED, "the other side has ended") : STATUS_OK;
}

static void *second_run(void *arg)
{
    struct diff *diff = arg;
    struct error err = {0};
    enum status st =
        reader_stream(diff->second, diff->second_pieces, diff->pieces_count, 0, offer, diff, &err);

    pthread_mutex_lock(&diff->lock);
    diff->second_st = st;
    diff->second_err = err;
    diff->ended = true;
    pthread_cond_broadcast(&diff->changed);
    pthread_mutex_unlock(&diff->lock);
    return NULL;
}

/* --- the first side's */

static void row_end(struct diff *diff)
{
    if (diff->row.differing)
        diff->fn(diff->arg, &diff->row);
    else
        diff->sum.same++;
}

static void row_begin(struct diff *diff, size_t piece)
{
    const struct name *name = &diff->names[diff->piece_name[piece]];

    diff->piece = piece;
    diff->row = (struct diff_row){.kind = DIFF_VALUES,
                                  .first = name->first,
                                  .second = name->second,
                                  .elements = layout_tensor_elements(name->first),
                                  .has_max = diff_values_measured(name->first->dtype)};
}

/* Tensors without elements come in no run. */
static void rows_until(struct diff *diff, size_t piece)
{
    while (diff->piece < piece) {
        row_end(diff);
        if (diff->piece + 1 == diff->pieces_count)
            return;
        row_begin(diff, diff->piece + 1);
    }
}

static enum status compare(void *arg, size_t piece, uint64_t at, const void *bytes, size_t len,
                           struct error *err)
{
    struct diff *diff = arg;

    (void)at;
    if (watcher_stopped(diff->watcher))
        return error_set(err, STATUS_CANCELLED, "stopped");
    rows_until(diff, piece);
    pthread_mutex_lock(&diff->lock);
    while (!diff->offered && !diff->ended)
        pthread_cond_wait(&diff->changed, &diff->lock);
    bool there = diff->offered && diff->offered_len == len;
    if (there)
        diff_values(diff->row.first->dtype, bytes, diff->offered, len, &diff->row.differing,
                    &diff->row.max_abs);
    diff->offered = NULL;
    pthread_cond_broadcast(&diff->changed);
    pthread_mutex_unlock(&diff->lock);
    diff->sum.bytes += len;
    watcher_moved(diff->watcher, len);
    return there ? STATUS_OK : error_set(err, STATUS_CANCELLED, "the other side has ended");
}

static enum status compare_all(struct diff *diff, struct error *err)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, second_run, diff) != 0)
        return error_set(err, STATUS_EXHAUSTED, "no thread to read the second checkpoint");
    enum status st =
        reader_stream(diff->first, diff->first_pieces, diff->pieces_count, 0, compare, diff, err);
    pthread_mutex_lock(&diff->lock);
    bool first_ended = diff->ended; /* the second side's failure is then the cause */
    diff->ended = true;
    pthread_cond_broadcast(&diff->changed);
    pthread_mutex_unlock(&diff->lock);
    pthread_join(thread, NULL);
    if (st == STATUS_CANCELLED && first_ended && diff->second_st != STATUS_OK)
        return error_set(err, diff->second_st, "second: %s", diff->second_err.text);
    return st;
}

static void tell_forms(struct diff *diff)
{
    for (size_t i = 0; i < diff->count; i++) {
        const struct name *name = &diff->names[i];
        struct diff_row row = {.first = name->first, .second = name->second};
        if (same_form(name))
            continue;
        row.kind = !name->second                               ? DIFF_ONLY_FIRST
                   : !name->first                              ? DIFF_ONLY_SECOND
                   : name->first->dtype != name->second->dtype ? DIFF_TYPE
                                                               : DIFF_SHAPE;
        diff->fn(diff->arg, &row);
    }
}

enum status diff_run(struct reader *first, struct reader *second, const struct watcher *watcher,
                     diff_fn fn, void *arg, struct diff_sum *out, struct error *err)
{
    struct diff diff = {.first = first, .second = second, .watcher = watcher, .fn = fn, .arg = arg};
    enum status st = STATUS_OK;

    pthread_mutex_init(&diff.lock, NULL);
    pthread_cond_init(&diff.changed, NULL);
    pair_names(&diff);
    choose_pieces(&diff);
    tell_forms(&diff);
    diff.sum.tensors = diff.count;
    if (diff.pieces_count) {
        row_begin(&diff, 0);
        st = compare_all(&diff, err);
        if (st == STATUS_OK)
            rows_until(&diff, diff.pieces_count);
    }
    if (st == STATUS_OK && out)
        *out = diff.sum;
    pthread_cond_destroy(&diff.changed);
    pthread_mutex_destroy(&diff.lock);
    mem_free(diff.names);
    mem_free(diff.first_pieces);
    mem_free(diff.second_pieces);
    mem_free(diff.piece_name);
    return st;
}
