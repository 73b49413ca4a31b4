/* spool_read.c - from workers' reports files into entries: cut, scan, thin.
 *
 * Cut: reports go into entries while the window has room. Scan: the window is full, only what the
 * records say is noted (a worker's end must be known with the daemon away). Thin: too much waits,
 * one report of SPOOL_THIN_KEEP is kept. One read a source at a time, four in all. */
#include "agent/spool_inner.h"
#include "base/log.h"
#include <string.h>

#define READS_MAX       4u
#define BROKEN_US       5000000
#define THIN_READ_BYTES SPOOL_READ_BYTES_MAX

struct read { /* one outstanding read */
    struct spool *spool;
    char tag[SPOOL_TAG_MAX];
};

bool spool_read_has_room(const struct spool *spool)
{
    return spool->entries_count - spool->thinned_count < spool->options.window;
}

void spool_read_seal(struct spool *spool)
{
    struct entry *entry = spool->filling;
    if (!entry)
        return;
    struct spool_piece *last = &entry->pieces[entry->pieces_count - 1];
    tail_batch_end(&spool->batch, last->dropped);
    spool->filling = NULL;
    entry->seq = ++spool->seq_last;
    entry->state = ENTRY_WRITING;
    spool_index_entry(&spool->lines, entry->seq, entry->thinned, entry->pieces,
                      entry->pieces_count);
    loop_timer_stop(spool->fill_timer);
    spool_disk_flush(spool);
}

static struct entry *filling_entry(struct spool *spool)
{
    if (spool->filling)
        return spool->filling;
    struct entry *entry = spool_disk_entry_create();
    list_add_last(&spool->entries, &entry->node);
    spool->entries_count++;
    spool->filling = entry;
    loop_timer_set(spool->fill_timer, SPOOL_FILL_US);
    return entry;
}

/* The piece of this source that is being filled: the last one of the entry. */
static struct spool_piece *filling_piece(struct spool *spool, struct source *source, uint64_t from)
{
    struct entry *entry = filling_entry(spool);
    struct spool_piece *last = entry->pieces_count ? &entry->pieces[entry->pieces_count - 1] : NULL;
    if (last && strcmp(last->tag, source->tag) == 0)
        return last;
    if (last)
        tail_batch_end(&spool->batch, last->dropped);
    entry->pieces = mem_resize(entry->pieces, entry->pieces_count + 1, sizeof(*entry->pieces));
    last = &entry->pieces[entry->pieces_count++];
    *last = (struct spool_piece){.from = from, .to = from};
    memcpy(last->tag, source->tag, sizeof(last->tag));
    source->unacked++;
    tail_batch_begin(&spool->batch, &entry->bytes, &source->key);
    return last;
}

static void piece_update(struct source *source, struct spool_piece *piece, uint64_t to)
{
    piece->to = to;
    piece->dropped += source->dropped;
    source->dropped = 0;
    piece->step = source->step;
    piece->samples = source->samples;
    piece->flags = source->flags;
}

/* What a record says of the worker, once. */
static void note(struct spool *spool, struct source *source, uint64_t end,
                 const struct tail_record *record)
{
    if (end <= source->scan)
        return;
    const struct spool_source_events *events = spool->options.events;
    source->scan = end;
    uint32_t flags = source->flags | (record->joined ? SPOOL_JOINED : 0u) |
                     (record->finished ? SPOOL_FINISHED : 0u);
    if (record->report && record->has_step) {
        source->step = record->step;
        source->samples = record->samples >= 0 ? record->samples : source->samples;
        events->progress(spool->options.arg, source->tag, source->step, source->samples);
    }
    if (flags != source->flags) {
        source->flags = flags;
        events->flags(spool->options.arg, source->tag, flags & SPOOL_JOINED,
                      flags & SPOOL_FINISHED);
    }
    if (record->failure) {
        Pb__WorkerFailure *failure =
            pb__worker_failure__unpack(NULL, record->failure_len, record->failure);
        if (failure)
            events->failure(spool->options.arg, source->tag, failure);
        pb__worker_failure__free_unpacked(failure, NULL);
    }
}

static void drop(struct spool *spool, struct source *source, uint64_t points)
{
    source->dropped += points;
    spool->counts.dropped += points;
}

static void cut_record(struct spool *spool, struct source *source, uint64_t from, uint64_t to,
                       const struct tail_record *record)
{
    source->cut = to;
    drop(spool, source, record->refused ? 1 : record->dropped);
    if (!record->report && source->dropped == 0)
        return;
    struct spool_piece *piece = filling_piece(spool, source, from);
    if (record->report) {
        tail_batch_add(&spool->batch, record->report, record->report_len);
        piece->count++;
        spool->counts.reports++;
    }
    piece_update(source, piece, to);
    struct entry *entry = spool->filling;
    if (++entry->reports >= SPOOL_ENTRY_REPORTS_MAX || entry->bytes.len >= SPOOL_ENTRY_BYTES_MAX ||
        entry->pieces_count >= SPOOL_PIECES_MAX)
        spool_read_seal(spool);
}

/* Returns how many bytes of whole records were used. */
static size_t take_records(struct spool *spool, struct source *source,
                           const struct files_step *step, enum tail_result *result)
{
    size_t at = 0;
    *result = TAIL_RECORD;
    while (source->reading == SOURCE_SCANNING || spool_read_has_room(spool) || spool->filling) {
        struct tail_record record;
        uint64_t from = (uint64_t)step->offset + at;
        *result = tail_next(step->bytes, step->len, &at, &record);
        if (*result != TAIL_RECORD)
            break;
        uint64_t to = (uint64_t)step->offset + at;
        note(spool, source, to, &record);
        if (source->reading == SOURCE_CUTTING)
            cut_record(spool, source, from, to, &record);
    }
    return at;
}

/* One message of its own: a few reports of a long stretch, the rest counted. */
static size_t thin_records(struct spool *spool, struct source *source,
                           const struct files_step *step, enum tail_result *result)
{
    size_t at = 0;
    uint64_t seen = 0;
    struct tail_record record;
    spool_read_seal(spool);
    while ((*result = tail_next(step->bytes, step->len, &at, &record)) == TAIL_RECORD) {
        uint64_t to = (uint64_t)step->offset + at;
        note(spool, source, to, &record);
        source->cut = to;
        drop(spool, source, record.refused ? 1 : record.dropped);
        if (!record.report)
            continue;
        struct spool_piece *piece = filling_piece(spool, source, (uint64_t)step->offset);
        spool->filling->thinned = true;
        if (seen++ % SPOOL_THIN_KEEP == 0) {
            tail_batch_add(&spool->batch, record.report, record.report_len);
            piece->count++;
        } else {
            drop(spool, source, record.points);
        }
        piece_update(source, piece, to);
    }
    spool->thinned_count += spool->filling ? 1 : 0;
    spool_read_seal(spool);
    return at;
}

void spool_read_settle(struct spool *spool, struct source *source)
{
    if (!source->leaving || source->want_cut || source->reading != SOURCE_IDLE || source->unacked ||
        source->settled)
        return;
    source->settled = true;
    spool->options.events->settled(spool->options.arg, source->tag);
}

static void reached_end(struct spool *spool, struct source *source, enum source_read how)
{
    source->want_scan = false;
    if (how != SOURCE_SCANNING)
        source->want_cut = false;
    if (source->draining) {
        source->draining = false;
        spool->options.events->drained(spool->options.arg, source->tag);
    }
}

/* A record that stays wrong is broken: nothing behind it can be found. */
static bool is_broken(struct spool *spool, struct source *source)
{
    int64_t now = loop_now_us(spool->options.loop);
    if (source->broken_since_us == 0)
        source->broken_since_us = now;
    if (!source->draining && !source->leaving && now - source->broken_since_us < BROKEN_US)
        return false;
    drop(spool, source, 1);
    log_warn("spool.broken", log_str("worker", source->tag),
             log_int("offset", (int64_t)source->scan));
    return true;
}

static void read_consumed(struct spool *spool, struct source *source, enum source_read how,
                          const struct files_step *step, size_t used, enum tail_result result)
{
    bool whole = (uint64_t)step->offset + step->len >= step->size;
    if (result == TAIL_RECORD)
        return; /* the window is full: the rest waits */
    if (result == TAIL_BROKEN || result == TAIL_WRONG_CRC) {
        if (is_broken(spool, source))
            reached_end(spool, source, how);
        else
            source->want_cut = source->want_scan = false; /* the next kick looks again */
        return;
    }
    source->broken_since_us = 0;
    if (whole)
        reached_end(spool, source, how);
    else if (used == 0 && source->read_max < SPOOL_READ_BYTES_MAX)
        source->read_max = SPOOL_READ_BYTES_MAX; /* one record is larger than a usual read */
}

static void spool_read_done(void *arg, enum status st, const struct error *err,
                            struct files_batch *batch)
{
    struct read *read = arg;
    struct spool *spool = read->spool;
    struct source *source = spool_find(spool, read->tag);
    spool->reads--;
    if (source) {
        const struct files_step *step = &batch->steps[0];
        enum source_read how = source->reading;
        enum tail_result result = TAIL_END;
        if (st != STATUS_OK || step->missing) {
            if (st != STATUS_OK)
                log_warn("spool.read", log_str("worker", read->tag), log_err(err));
            source->reading = SOURCE_IDLE;
            reached_end(spool, source, SOURCE_CUTTING);
        } else {
            source->size = step->size;
            size_t used = how == SOURCE_THINNING ? thin_records(spool, source, step, &result)
                                                 : take_records(spool, source, step, &result);
            source->reading = SOURCE_IDLE;
            read_consumed(spool, source, how, step, used, result);
        }
        spool_read_settle(spool, source);
    }
    pending_destroy(read);
    spool_read_pump(spool);
}

static void read_start(struct spool *spool, struct source *source, enum source_read how)
{
    struct read *read = PENDING(&spool->pending, struct read);
    struct files_batch *batch = files_batch_create();
    uint64_t at = how == SOURCE_SCANNING ? source->scan : source->cut;
    read->spool = spool;
    memcpy(read->tag, source->tag, sizeof(read->tag));
    source->reading = how;
    spool->reads++;
    files_read(batch, source->path, (int64_t)at,
               how == SOURCE_THINNING ? THIN_READ_BYTES : source->read_max)
        ->missing_ok = true;
    files_run(spool->options.files, batch, spool_read_done, read);
}

static void thin_if_too_much(struct spool *spool)
{
    struct spool_counts counts;
    struct source *source, *largest = NULL;
    size_t at = 0;
    uint64_t cut_bytes = 0;
    spool_counts(spool, &counts);
    while ((source = map_next(spool->sources, &at))) {
        uint64_t waits = source->size > source->cut ? source->size - source->cut : 0;
        cut_bytes += waits;
        if (source->reading == SOURCE_IDLE && (!largest || waits > largest->size - largest->cut) &&
            waits > 0)
            largest = source;
    }
    if (largest && cut_bytes > spool->options.bytes_max)
        read_start(spool, largest, SOURCE_THINNING);
}

void spool_read_pump(struct spool *spool)
{
    size_t at = 0;
    struct source *source;
    if (!spool->ready)
        return;
    bool room = spool_read_has_room(spool);
    while (spool->reads < READS_MAX && (source = map_next(spool->sources, &at))) {
        if (source->reading != SOURCE_IDLE)
            continue;
        if (room && source->want_cut)
            read_start(spool, source, SOURCE_CUTTING);
        else if (source->want_scan)
            read_start(spool, source, SOURCE_SCANNING);
        else
            spool_read_settle(spool, source);
    }
    if (!room && spool->reads < READS_MAX)
        thin_if_too_much(spool);
}
