/* spool_index.h - the spool's file: which bytes of which worker's reports went into which message.
 *
 * Pure: text lines, each behind the CRC32C of its words, so that a torn last line is seen and
 * ignored. Lines:
 *   e <seq> <thinned> <pieces> {<tag> <from> <to> <count> <dropped> <step> <samples> <flags>}
 *   a <seq>                                 everything up to seq is stored by the daemon
 *   t <tag> <to> <step> <samples> <flags>   what a forgotten prefix of the file said (compaction)
 *   f <tag>                                 this worker's reports are not wanted any more */
#pragma once
#include "base/text.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPOOL_TAG_MAX    256
#define SPOOL_PIECES_MAX 256
enum { SPOOL_JOINED = 1, SPOOL_FINISHED = 2 }; /* flags */

struct spool_piece {
    char tag[SPOOL_TAG_MAX];
    uint64_t from, to; /* bytes of the worker's reports file */
    uint32_t count;    /* reports in the message */
    uint64_t dropped;  /* points left out before or between them */
    int64_t step, samples;
    uint32_t flags;
};
void spool_index_entry(struct text *out, uint64_t seq, bool thinned,
                       const struct spool_piece *pieces, size_t count);
void spool_index_acked(struct text *out, uint64_t seq);
void spool_index_base(struct text *out, const struct spool_piece *base);
void spool_index_forget(struct text *out, const char *tag);

struct spool_index_events {
    void (*entry)(void *arg, uint64_t seq, bool thinned, const struct spool_piece *pieces,
                  size_t count);
    void (*acked)(void *arg, uint64_t seq);
    void (*base)(void *arg, const struct spool_piece *base);
    void (*forget)(void *arg, const char *tag);
};
/* Stops at the first bad line; returns how many bytes were good. */
size_t spool_index_parse(const char *bytes, size_t len, const struct spool_index_events *events,
                         void *arg);
