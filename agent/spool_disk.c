/* spool_disk.c - the spool's index on disk, and bytes of entries made again from the files.
 *
 * One append at a time; what comes meanwhile goes with the next one (group commit). An entry may be
 * sent once its line is durable. */
#include "agent/spool_inner.h"
#include "base/log.h"
#include <inttypes.h>
#include <string.h>

#define INDEX_READ_MAX ((size_t)64 << 20)
#define COMPACT_BYTES  ((size_t)1 << 20)

struct entry *spool_disk_entry_create(void)
{
    struct entry *entry = NEW(struct entry);
    list_init(&entry->node);
    text_init(&entry->bytes, 0);
    return entry;
}

void spool_disk_entry_destroy(struct entry *entry)
{
    if (!entry)
        return;
    mem_free(entry->pieces);
    text_fini(&entry->bytes);
    mem_free(entry);
}

char *spool_disk_thin_path(const struct spool *spool, uint64_t seq)
{
    return mem_printf("%s/%" PRIu64 ".thin", spool->dir, seq);
}

void spool_disk_forget(struct spool *spool, const char *tag)
{
    spool_index_forget(&spool->lines, tag);
}

/* --- writing */

static void written(struct spool *spool)
{
    LIST_EACH(&spool->entries, node)
    {
        struct entry *entry = LIST_ITEM(node, struct entry, node);
        if (entry->state != ENTRY_WRITING || entry->seq > spool->writing_seq)
            continue;
        entry->state = ENTRY_DURABLE;
        if (entry->thinned) { /* many may wait: their bytes stay on disk */
            text_fini(&entry->bytes);
            text_init(&entry->bytes, 0);
        }
    }
}

static void spool_disk_flush_done(void *arg, enum status st, const struct error *err,
                                  struct files_batch *batch)
{
    struct spool *spool = arg;
    const struct files_step *last = &batch->steps[batch->count - 1];
    enum spool_write what = spool->writing;
    spool->writing = SPOOL_WRITE_IDLE;
    if (st != STATUS_OK) { /* the lines come before what was added since; the tick tries again */
        struct text lines = spool->lines;
        log_error("spool.write", log_err(err));
        if (what == SPOOL_WRITE_APPEND) {
            text_init(&spool->lines, 0);
            text_add_bytes(&spool->lines, last->bytes, last->len);
            text_add_bytes(&spool->lines, text_get(&lines), lines.len);
            text_fini(&lines);
        }
        return;
    }
    if (what == SPOOL_WRITE_APPEND) {
        spool->index_bytes += last->len;
        written(spool);
    } else {
        spool->index_bytes = last->len;
    }
    spool_disk_flush(spool);
    spool_send_some(spool);
}

/* All that still matters, as a fresh index. Lines that wait are appended behind it afterwards: they
 * may repeat what is here, which is harmless, as the last word on a tag or number counts. */
static void compact(struct spool *spool)
{
    struct text all;
    size_t at = 0;
    const struct source *source;
    text_init(&all, 0);
    spool_index_acked(&all, spool->acked);
    while ((source = map_next(spool->sources, &at))) {
        struct spool_piece base = {.to = source->unacked ? source->acked : source->cut,
                                   .step = source->step,
                                   .samples = source->samples,
                                   .flags = source->flags};
        memcpy(base.tag, source->tag, sizeof(base.tag));
        spool_index_base(&all, &base);
    }
    LIST_EACH(&spool->entries, node)
    {
        const struct entry *entry = LIST_ITEM(node, struct entry, node);
        if (entry->state == ENTRY_DURABLE)
            spool_index_entry(&all, entry->seq, entry->thinned, entry->pieces, entry->pieces_count);
    }
    struct files_batch *batch = files_batch_create();
    files_write(batch, spool->index_path, text_get(&all), all.len, 0600)->sync = true;
    text_fini(&all);
    spool->writing = SPOOL_WRITE_COMPACT;
    files_run(spool->options.files, batch, spool_disk_flush_done, spool);
}

void spool_disk_flush(struct spool *spool)
{
    if (spool->writing != SPOOL_WRITE_IDLE || !spool->ready)
        return;
    if (spool->index_bytes > COMPACT_BYTES && spool->bases &&
        spool->index_bytes > spool->entries_count * 200) {
        compact(spool);
        return;
    }
    if (spool->lines.len == 0)
        return;
    struct files_batch *batch = files_batch_create();
    LIST_EACH(&spool->entries, node)
    {
        const struct entry *entry = LIST_ITEM(node, struct entry, node);
        if (entry->state != ENTRY_WRITING)
            continue;
        spool->writing_seq = entry->seq;
        if (entry->thinned) {
            SCOPED_TEXT char *path = spool_disk_thin_path(spool, entry->seq);
            files_write(batch, path, text_get(&entry->bytes), entry->bytes.len, 0600)->sync = true;
        }
    }
    files_append(batch, spool->index_path, text_get(&spool->lines), spool->lines.len)->sync = true;
    text_reset(&spool->lines);
    spool->writing = SPOOL_WRITE_APPEND;
    files_run(spool->options.files, batch, spool_disk_flush_done, spool);
}

/* --- reading at start */

static struct spool_piece *base_of(struct spool *spool, const char *tag)
{
    struct spool_piece *base = map_get_text(spool->bases, tag);
    if (!base) {
        base = NEW(struct spool_piece);
        *base = (struct spool_piece){.step = -1, .samples = -1};
        memcpy(base->tag, tag, strlen(tag) + 1);
        (void)map_put_text(spool->bases, tag, base);
    }
    return base;
}

static void load_entry(void *arg, uint64_t seq, bool thinned, const struct spool_piece *pieces,
                       size_t count)
{
    struct spool *spool = arg;
    for (size_t i = 0; i < count; i++) {
        struct spool_piece *base = base_of(spool, pieces[i].tag);
        if (pieces[i].to < base->to)
            continue;
        base->to = pieces[i].to;
        base->step = pieces[i].step;
        base->samples = pieces[i].samples;
        base->flags = pieces[i].flags;
    }
    if (seq <= spool->seq_last)
        return; /* written twice, around a compaction */
    struct entry *entry = spool_disk_entry_create();
    entry->seq = seq;
    entry->thinned = thinned;
    entry->state = ENTRY_DURABLE;
    entry->pieces = mem_dup(pieces, count * sizeof(*pieces));
    entry->pieces_count = count;
    list_add_last(&spool->entries, &entry->node);
    spool->entries_count++;
    spool->thinned_count += thinned ? 1 : 0;
    spool->seq_last = seq;
}

static void load_acked(void *arg, uint64_t seq)
{
    struct spool *spool = arg;
    LIST_EACH(&spool->entries, node)
    {
        struct entry *entry = LIST_ITEM(node, struct entry, node);
        if (entry->seq > seq)
            break;
        for (size_t i = 0; i < entry->pieces_count; i++)
            base_of(spool, entry->pieces[i].tag)->from = entry->pieces[i].to;
        spool->entries_count--;
        spool->thinned_count -= entry->thinned ? 1 : 0;
        list_remove(&entry->node);
        spool_disk_entry_destroy(entry);
    }
    if (seq > spool->acked)
        spool->acked = seq;
    if (seq > spool->seq_last)
        spool->seq_last = seq;
}

static void load_base(void *arg, const struct spool_piece *piece)
{
    struct spool_piece *base = base_of(arg, piece->tag);
    base->from = base->to = piece->to;
    base->step = piece->step;
    base->samples = piece->samples;
    base->flags = piece->flags;
}

static void load_forget(void *arg, const char *tag)
{
    struct spool *spool = arg;
    mem_free(map_remove_text(spool->bases, tag));
}

static const struct spool_index_events load_events = {load_entry, load_acked, load_base,
                                                      load_forget};

static void load_answer(struct spool *spool, enum status st, const struct error *err)
{
    spool->ready = st == STATUS_OK;
    spool->loaded(spool->loaded_arg, st, err);
}

static void spool_load_cut_done(void *arg, enum status st, const struct error *err,
                                struct files_batch *batch)
{
    (void)batch;
    load_answer(arg, st, err);
}

static void spool_load_done(void *arg, enum status st, const struct error *err,
                            struct files_batch *batch)
{
    struct spool *spool = arg;
    const struct files_step *step = &batch->steps[0];
    if (st != STATUS_OK) {
        load_answer(spool, st, err);
        return;
    }
    size_t good = step->len ? spool_index_parse(step->bytes, step->len, &load_events, spool) : 0;
    spool->index_bytes = good;
    if (good == step->len) {
        load_answer(spool, STATUS_OK, NULL);
        return;
    }
    /* A torn last line: whatever it said was never sent. Later lines must not follow it. */
    struct files_batch *cut = files_batch_create();
    files_write(cut, spool->index_path, step->bytes, good, 0600)->sync = true;
    files_run(spool->options.files, cut, spool_load_cut_done, spool);
}

void spool_load(struct spool *spool,
                void (*done)(void *arg, enum status st, const struct error *err), void *arg)
{
    struct files_batch *batch = files_batch_create();
    spool->loaded = done;
    spool->loaded_arg = arg;
    files_read(batch, spool->index_path, 0, INDEX_READ_MAX)->missing_ok = true;
    files_run(spool->options.files, batch, spool_load_done, spool);
}

/* --- bytes of an entry, made again */

static void load_next_piece(struct spool *spool);

static void load_piece(struct spool *spool, const struct source *source,
                       const struct spool_piece *piece, const struct files_step *step)
{
    struct tail_batch batch;
    struct tail_record record;
    size_t at = 0;
    uint32_t count = 0;
    uint64_t lost = 0;
    if (!source)
        return;
    tail_batch_begin(&batch, &spool->load.bytes, &source->key);
    while (step && step->len && count < piece->count &&
           tail_next(step->bytes, step->len, &at, &record) == TAIL_RECORD) {
        if (!record.report)
            continue;
        tail_batch_add(&batch, record.report, record.report_len);
        count++;
    }
    lost = piece->count - count; /* the machine went down before the worker's file reached disk */
    spool->counts.dropped += lost;
    tail_batch_end(&batch, piece->dropped + lost);
}

static void load_finish(struct spool *spool)
{
    struct entry *entry = spool->load.entry;
    spool->load.entry = NULL;
    entry->bytes = spool->load.bytes;
    text_init(&spool->load.bytes, 0);
    if (entry->bytes.len == 0) /* nothing is left of it: its number still has to go up */
        text_add_bytes(&entry->bytes, "\x1a", 1);
    if (entry->seq <= spool->acked)
        spool_acked(spool, spool->acked);
    spool_send_some(spool);
}

static void spool_load_piece_done(void *arg, enum status st, const struct error *err,
                                  struct files_batch *batch)
{
    struct spool *spool = arg;
    const struct entry *entry = spool->load.entry;
    const struct files_step *step = &batch->steps[0];
    if (st != STATUS_OK)
        log_warn("spool.reread", log_int("seq", (int64_t)entry->seq), log_err(err));
    if (entry->thinned) {
        if (st == STATUS_OK)
            text_add_bytes(&spool->load.bytes, step->bytes, step->len);
        load_finish(spool);
        return;
    }
    const struct spool_piece *piece = &entry->pieces[spool->load.piece++];
    load_piece(spool, spool_find(spool, piece->tag), piece, st == STATUS_OK ? step : NULL);
    load_next_piece(spool);
}

static void load_next_piece(struct spool *spool)
{
    const struct entry *entry = spool->load.entry;
    while (!entry->thinned && spool->load.piece < entry->pieces_count &&
           !spool_find(spool, entry->pieces[spool->load.piece].tag))
        spool->load.piece++; /* that worker is gone with its file */
    if (!entry->thinned && spool->load.piece >= entry->pieces_count) {
        load_finish(spool);
        return;
    }
    struct files_batch *batch = files_batch_create();
    if (entry->thinned) {
        SCOPED_TEXT char *path = spool_disk_thin_path(spool, entry->seq);
        files_read(batch, path, 0, SPOOL_READ_BYTES_MAX)->missing_ok = true;
    } else {
        const struct spool_piece *piece = &entry->pieces[spool->load.piece];
        const struct source *source = spool_find(spool, piece->tag);
        files_read(batch, source->path, (int64_t)piece->from, (size_t)(piece->to - piece->from))
            ->missing_ok = true;
    }
    files_run(spool->options.files, batch, spool_load_piece_done, spool);
}

void spool_disk_load_entry(struct spool *spool, struct entry *entry)
{
    if (spool->load.entry)
        return;
    spool->load.entry = entry;
    spool->load.piece = 0;
    text_reset(&spool->load.bytes);
    load_next_piece(spool);
}
