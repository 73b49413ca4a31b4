/* link.h - the agent's conversation with the daemon: hello, terms, heartbeats, sequence numbers,
 * reconnects.
 *
 * Loop thread only. Owns neither uplink nor files. A message with an older term than the highest
 * one obeyed is refused and its stream closed; a newer term is on disk before anything said under
 * it is obeyed. Heartbeats wait for no disk. */
#pragma once
#include "agent/files.h"
#include "agent/uplink.h"
#include "base/loop.h"
#include <stdbool.h>

struct link;
struct link_events {
    const Pb__NodeInventory *(*inventory)(void *arg); /* for Hello; a loan */
    void (*heartbeat)(void *arg, Pb__Heartbeat *out);
    void (*welcome)(void *arg, const Pb__Welcome *welcome); /* now send the whole actual set */
    void (*desired)(void *arg, const Pb__Desired *desired);
    void (*acked)(void *arg, uint64_t seq); /* reports up to here are stored */
    void (*down)(void *arg);                /* the control stream is gone */
    void (*bulk_up)(void *arg, uint64_t mark);
    void (*bulk)(void *arg, const Pb__BulkDown *message);
    void (*bulk_drained)(void *arg);
    void (*bulk_down)(void *arg);
};
struct link_options {
    struct loop *loop;
    struct files *files;
    struct uplink *uplink;
    const char *node, *boot_id, *spool_id, *instance; /* copied */
    const char *term_path; /* where the highest term obeyed is kept; copied */
    uint64_t term;         /* what was there */
    const struct link_events *events;
    void *arg;
};
struct link *link_create(const struct link_options *options);
void link_destroy(struct link *link); /* NULL is fine */
void link_start(struct link *link);

bool link_is_up(const struct link *link);
/* How long the daemon has not been heard of; 0 while the stream is up. */
int64_t link_silent_us(const struct link *link);
/* How long no leader has answered: silent, or connected and acknowledging nothing, as a daemon
 * whose database is away. */
int64_t link_leaderless_us(const struct link *link);
uint64_t link_lease_ms(const struct link *link); /* as last welcomed; 15 s before that */
uint64_t link_term(const struct link *link);
/* Numbers and sends it. 0: the stream is down, nothing was sent. */
uint64_t link_report(struct link *link, Pb__ActualReport *report);
/* Bytes now queued; SIZE_MAX: the stream is down. */
size_t link_bulk(struct link *link, const Pb__BulkUp *message);
