/* spool.c - sources and entries of the spool, sending and acknowledgements. */
#include "agent/spool_inner.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

#define QUEUED_BYTES_MAX ((size_t)4 << 20)
#define PUNCH_BYTES      ((uint64_t)4 << 20)

static void spool_fill_over(void *arg)
{
    struct spool *spool = arg;
    spool_read_seal(spool);
}

static void spool_tick(void *arg)
{
    struct spool *spool = arg;
    loop_timer_set(spool->tick_timer, SPOOL_TICK_US);
    spool_read_pump(spool);
    spool_disk_flush(spool);
    spool_send_some(spool);
}

struct spool *spool_create(const struct spool_options *options)
{
    struct spool *spool = NEW(struct spool);
    spool->options = *options;
    spool->dir = mem_strdup(options->dir);
    spool->index_path = mem_printf("%s/index", options->dir);
    spool->sources = map_create();
    spool->bases = map_create();
    list_init(&spool->entries);
    list_init(&spool->pending);
    text_init(&spool->lines, 0);
    text_init(&spool->load.bytes, 0);
    spool->fill_timer = loop_timer_create(options->loop, spool_fill_over, spool);
    spool->tick_timer = loop_timer_create(options->loop, spool_tick, spool);
    return spool;
}

static void source_destroy(struct source *source)
{
    mem_free(source->role);
    mem_free(source->path);
    mem_free(source);
}

void spool_destroy(struct spool *spool)
{
    if (!spool)
        return;
    size_t at = 0;
    void *value;
    while ((value = map_next(spool->sources, &at)))
        source_destroy(value);
    at = 0;
    while ((value = map_next(spool->bases, &at)))
        mem_free(value);
    map_destroy(spool->sources);
    map_destroy(spool->bases);
    LIST_EACH(&spool->entries, node)
    spool_disk_entry_destroy(LIST_ITEM(node, struct entry, node));
    pending_destroy_all(&spool->pending);
    text_fini(&spool->lines);
    text_fini(&spool->load.bytes);
    loop_timer_destroy(spool->fill_timer);
    loop_timer_destroy(spool->tick_timer);
    mem_free(spool->dir);
    mem_free(spool->index_path);
    mem_free(spool);
}

struct source *spool_find(const struct spool *spool, const char *tag)
{
    return map_get_text(spool->sources, tag);
}

bool spool_source_known(const struct spool *spool, const char *tag)
{
    return spool_find(spool, tag) != NULL;
}

static void claim_base(struct spool *spool, struct source *source)
{
    struct spool_piece *base = map_remove_text(spool->bases, source->tag);
    if (!base)
        return;
    source->cut = source->scan = source->size = base->to;
    source->acked = base->from;
    source->step = base->step;
    source->samples = base->samples;
    source->flags = base->flags;
    LIST_EACH(&spool->entries, node)
    {
        const struct entry *entry = LIST_ITEM(node, struct entry, node);
        for (size_t i = 0; i < entry->pieces_count; i++)
            source->unacked += strcmp(entry->pieces[i].tag, source->tag) == 0;
    }
    const struct spool_source_events *events = spool->options.events;
    if (source->step >= 0)
        events->progress(spool->options.arg, source->tag, source->step, source->samples);
    if (source->flags)
        events->flags(spool->options.arg, source->tag, source->flags & SPOOL_JOINED,
                      source->flags & SPOOL_FINISHED);
    mem_free(base);
}

void spool_source_add(struct spool *spool, const char *tag, const struct tail_key *key,
                      const char *path)
{
    if (spool_find(spool, tag) || strlen(tag) >= SPOOL_TAG_MAX)
        return;
    struct source *source = NEW(struct source);
    (void)snprintf(source->tag, sizeof(source->tag), "%s", tag);
    source->key = *key;
    source->role = mem_strdup(key->role);
    source->key.role = source->role;
    source->path = mem_strdup(path);
    source->read_max = SPOOL_READ_BYTES;
    source->step = source->samples = -1;
    (void)map_put_text(spool->sources, tag, source);
    claim_base(spool, source);
}

void spool_kick(struct spool *spool, const char *tag)
{
    struct source *source = spool_find(spool, tag);
    if (!source)
        return;
    source->want_cut = source->want_scan = true;
    spool_read_pump(spool);
}

void spool_drain(struct spool *spool, const char *tag)
{
    struct source *source = spool_find(spool, tag);
    if (!source)
        return;
    source->draining = source->want_cut = source->want_scan = true;
    spool_read_pump(spool);
}

void spool_leave(struct spool *spool, const char *tag)
{
    struct source *source = spool_find(spool, tag);
    if (!source || source->leaving)
        return;
    source->leaving = source->want_cut = source->want_scan = true;
    spool_read_pump(spool);
}

void spool_forget(struct spool *spool, const char *tag)
{
    struct source *source = spool_find(spool, tag);
    if (!source || !source->settled)
        return;
    (void)map_remove_text(spool->sources, source->tag);
    spool_disk_forget(spool, source->tag);
    source_destroy(source);
}

/* The batches are encoded already: they ride as one raw field, whose bytes are field 3, repeated.
 */
static void send_entry(struct spool *spool, struct entry *entry)
{
    Pb__BulkUp message = PB__BULK_UP__INIT;
    ProtobufCMessageUnknownField raw = {
        .tag = 3,
        .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
        .len = entry->bytes.len - 1,
        .data = (uint8_t *)entry->bytes.data + 1,
    };
    message.has_seq = true;
    message.seq = entry->seq;
    if (entry->bytes.len > 1) {
        message.base.n_unknown_fields = 1;
        message.base.unknown_fields = &raw;
    }
    entry->sent = true;
    spool->in_flight++;
    spool->counts.messages++;
    spool->blocked = spool->options.send(spool->options.arg, &message) > QUEUED_BYTES_MAX;
}

void spool_send_some(struct spool *spool)
{
    if (!spool->up || !spool->ready)
        return;
    LIST_EACH(&spool->entries, node)
    {
        struct entry *entry = LIST_ITEM(node, struct entry, node);
        if (entry->sent)
            continue;
        if (entry->state != ENTRY_DURABLE || spool->blocked ||
            spool->in_flight >= spool->options.window)
            return;
        if (entry->bytes.len == 0) {
            spool_disk_load_entry(spool, entry);
            return;
        }
        send_entry(spool, entry);
    }
}

/* Bases that no worker claimed belong to workers that are gone. */
static void drop_strangers(struct spool *spool)
{
    size_t at = 0;
    struct spool_piece *base;
    while ((base = map_next(spool->bases, &at))) {
        (void)map_remove_text(spool->bases, base->tag);
        spool_disk_forget(spool, base->tag);
        mem_free(base);
    }
}

void spool_up(struct spool *spool, uint64_t mark)
{
    spool->up = true;
    spool->blocked = false;
    spool->in_flight = 0;
    LIST_EACH(&spool->entries, node)
    LIST_ITEM(node, struct entry, node)->sent = false;
    drop_strangers(spool);
    if (mark > spool->seq_last)
        spool->seq_last = mark; /* the daemon has seen more of this spool than the disk kept */
    spool_acked(spool, mark);
    loop_timer_set(spool->tick_timer, SPOOL_TICK_US);
    spool_send_some(spool);
}

void spool_down(struct spool *spool)
{
    spool->up = false;
    spool->in_flight = 0;
    LIST_EACH(&spool->entries, node)
    LIST_ITEM(node, struct entry, node)->sent = false;
}

void spool_resume(struct spool *spool)
{
    spool->blocked = false;
    spool_send_some(spool);
}

/* Blocks that the daemon has stored are given back to the file system while the worker runs on. */
static void punch(struct spool *spool, struct source *source)
{
    if (source->acked < source->punched + PUNCH_BYTES)
        return;
    struct files_batch *batch = files_batch_create();
    struct files_step *step = files_step_add(batch, FILES_PUNCH, source->path);
    step->offset = (int64_t)source->punched;
    step->max = (size_t)(source->acked - source->punched);
    step->missing_ok = true;
    source->punched = source->acked;
    files_run(spool->options.files, batch, NULL, NULL);
}

static void entry_acked(struct spool *spool, struct entry *entry)
{
    for (size_t i = 0; i < entry->pieces_count; i++) {
        const struct spool_piece *piece = &entry->pieces[i];
        struct source *source = spool_find(spool, piece->tag);
        if (!source)
            continue;
        source->unacked--;
        if (piece->to > source->acked)
            source->acked = piece->to;
        punch(spool, source);
        spool_read_settle(spool, source);
    }
    if (entry->thinned) {
        SCOPED_TEXT char *path = spool_disk_thin_path(spool, entry->seq);
        struct files_batch *batch = files_batch_create();
        (void)files_step_add(batch, FILES_REMOVE, path);
        files_run(spool->options.files, batch, NULL, NULL);
        spool->thinned_count--;
    }
    if (entry->sent && spool->in_flight > 0)
        spool->in_flight--;
    spool->entries_count--;
    list_remove(&entry->node);
    spool_disk_entry_destroy(entry);
}

void spool_acked(struct spool *spool, uint64_t seq)
{
    bool any = false;
    LIST_EACH(&spool->entries, node)
    {
        struct entry *entry = LIST_ITEM(node, struct entry, node);
        if (entry->seq > seq || entry->state != ENTRY_DURABLE || entry == spool->load.entry)
            break;
        entry_acked(spool, entry);
        any = true;
    }
    if (seq > spool->acked) {
        spool->acked = seq;
        any = true;
        spool_index_acked(&spool->lines, seq); /* a hint: written with the next entry */
    }
    if (any) {
        spool_read_pump(spool);
        spool_send_some(spool);
    }
}

void spool_counts(const struct spool *spool, struct spool_counts *out)
{
    size_t at = 0;
    const struct source *source;
    *out = spool->counts;
    out->seq = spool->seq_last;
    while ((source = map_next(spool->sources, &at)))
        if (source->size > source->acked)
            out->bytes += source->size - source->acked;
}
