/* spool_inner.h - what the spool's files share: messages (entries), sources, the index on disk.
 *
 * An entry lives from the first report that goes into it to its acknowledgement. Entries are in the
 * order of their numbers. FILLING: one at most, the last. WRITING: its index line is on the way to
 * disk. DURABLE: may be sent. */
#pragma once
#include "agent/pending.h"
#include "agent/spool.h"
#include "agent/spool_index.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"

#define SPOOL_ENTRY_REPORTS_MAX 1000u
#define SPOOL_ENTRY_BYTES_MAX   ((size_t)128 << 10)
#define SPOOL_READ_BYTES        ((size_t)256 << 10)
#define SPOOL_READ_BYTES_MAX    (TAIL_RECORD_BYTES_MAX + 8)
#define SPOOL_THIN_KEEP         16u /* of how many reports one is kept */
#define SPOOL_FILL_US           50000
#define SPOOL_TICK_US           1000000

enum entry_state { ENTRY_FILLING, ENTRY_WRITING, ENTRY_DURABLE };
struct entry {
    struct list node;
    uint64_t seq;
    enum entry_state state;
    bool thinned; /* its bytes have a file of their own */
    bool sent;    /* on the stream that is up now */
    struct spool_piece *pieces;
    size_t pieces_count;
    struct text bytes; /* encoded batches; empty: to be made again from the files */
    uint32_t reports;
};

struct source {
    char tag[SPOOL_TAG_MAX];
    struct tail_key key;
    char *role, *path;
    uint64_t cut;   /* up to here reports are in entries */
    uint64_t scan;  /* up to here records were looked at (>= cut when the window is full) */
    uint64_t size;  /* of the file, as last seen */
    uint64_t acked; /* up to here the daemon has stored */
    uint64_t punched;
    uint64_t dropped; /* not yet told */
    size_t read_max;
    int64_t step, samples;
    uint32_t flags, unacked; /* unacked: pieces in entries */
    int64_t broken_since_us;
    enum source_read { SOURCE_IDLE, SOURCE_CUTTING, SOURCE_SCANNING, SOURCE_THINNING } reading;
    bool want_cut, want_scan, draining, leaving, settled;
};

struct spool {
    struct spool_options options;
    char *dir, *index_path;
    struct map *sources; /* tag -> struct source */
    struct map *bases;   /* tag -> struct spool_piece: read from the index, not yet claimed */
    struct list entries, pending;
    struct entry *filling;
    struct tail_batch batch; /* of filling's last piece */
    size_t entries_count, thinned_count, in_flight, reads;
    uint64_t seq_last, acked;
    struct text lines; /* of the index, not yet written */
    size_t index_bytes;
    enum spool_write { SPOOL_WRITE_IDLE, SPOOL_WRITE_APPEND, SPOOL_WRITE_COMPACT } writing;
    uint64_t writing_seq;
    struct loop_timer *fill_timer, *tick_timer;
    bool up, blocked, ready;
    struct { /* the entry whose bytes are being made again */
        struct entry *entry;
        size_t piece;
        struct text bytes;
    } load;
    void (*loaded)(void *arg, enum status st, const struct error *err);
    void *loaded_arg;
    struct spool_counts counts;
};

/* spool.c */
void spool_send_some(struct spool *spool);
struct source *spool_find(const struct spool *spool, const char *tag);
/* spool_read.c */
void spool_read_pump(struct spool *spool);
void spool_read_seal(struct spool *spool); /* the filling entry is full or old enough */
bool spool_read_has_room(const struct spool *spool);
void spool_read_settle(struct spool *spool, struct source *source);
/* spool_disk.c */
void spool_disk_flush(struct spool *spool);
void spool_disk_load_entry(struct spool *spool, struct entry *entry);
void spool_disk_forget(struct spool *spool, const char *tag);
char *spool_disk_thin_path(const struct spool *spool, uint64_t seq); /* caller frees */
struct entry *spool_disk_entry_create(void);
void spool_disk_entry_destroy(struct entry *entry);
