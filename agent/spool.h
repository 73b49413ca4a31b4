/* spool.h - workers' reports on their way up: numbered, kept until acknowledged, never doubled.
 *
 * The reports themselves stay in the workers' own files. The spool keeps which bytes went into
 * which message: a line of its index is durable before the message is sent (README.md tells why
 * nothing is lost or doubled). Loop thread only. A window of unacknowledged messages is held; past
 * it the files wait on disk; past `bytes_max` of waiting bytes the oldest are thinned, with a
 * counted loss. Sources are named by tag; callbacks come later, but for what the index already
 * knows of a source, said inside spool_source_add, and `settled`, which an acknowledgement may say.
 */
#pragma once
#include "agent/files.h"
#include "agent/tail.h"
#include "base/loop.h"
#include "proto/pb.h"

struct spool;

struct spool_source_events { /* what a worker's records say, in order, each once per agent */
    void (*progress)(void *arg, const char *tag, int64_t step, int64_t samples);
    void (*flags)(void *arg, const char *tag, bool joined, bool finished);
    void (*failure)(void *arg, const char *tag, const Pb__WorkerFailure *failure);
    void (*drained)(void *arg, const char *tag); /* spool_drain: the file was read to its end */
    void (*settled)(void *arg, const char *tag); /* spool_leave: all is acknowledged */
};
struct spool_options {
    struct loop *loop;
    struct files *files;
    const char *dir; /* exists; copied */
    uint64_t bytes_max;
    uint32_t window; /* messages in flight */
    /* Sends on the bulk stream; returns bytes now queued there. */
    size_t (*send)(void *arg, const Pb__BulkUp *message);
    const struct spool_source_events *events;
    void *arg;
};
struct spool *spool_create(const struct spool_options *options);
void spool_destroy(struct spool *spool); /* after the files seam; NULL is fine */
/* Reads the index; done runs later. Add sources after it. */
void spool_load(struct spool *spool,
                void (*done)(void *arg, enum status st, const struct error *err), void *arg);
/* Its reports are at path; goes on where the index says. */
void spool_source_add(struct spool *spool, const char *tag, const struct tail_key *key,
                      const char *path);
bool spool_source_known(const struct spool *spool, const char *tag);
void spool_kick(struct spool *spool, const char *tag);  /* there may be more to read */
void spool_drain(struct spool *spool, const char *tag); /* read to the end, then `drained` */
void spool_leave(struct spool *spool, const char *tag); /* nothing more will come; `settled` */
/* Of a settled source, once its file is gone: an agent that found the file and knew nothing of it
 * would send it all again. */
void spool_forget(struct spool *spool, const char *tag);

void spool_up(struct spool *spool,
              uint64_t mark); /* bulk stream is up; mark: stored by the daemon */
void spool_down(struct spool *spool);
void spool_resume(struct spool *spool); /* the stream has drained */
void spool_acked(struct spool *spool, uint64_t seq);

struct spool_counts {
    uint64_t bytes;   /* not yet acknowledged */
    uint64_t dropped; /* points lost to bounds and broken records */
    uint64_t reports, messages;
    uint64_t seq;
};
void spool_counts(const struct spool *spool, struct spool_counts *out);
