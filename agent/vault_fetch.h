/* vault_fetch.h - a vault job: brings the parts of a checkpoint that other nodes have into this
 * node's vault, from one after the other until all are here; the manifest last.
 *
 * Blocking: in the pool. What an earlier run has brought is not asked for again: it goes on where
 * that one ended, also after kill -9 of either agent. Believed is what the manifest says of it,
 * which has the digest that the daemon told. */
#pragma once
#include "agent/peer_link.h"
#include "agent/vault_pool.h"

#define VAULT_FETCH_NOTE 200

struct vault_fetch { /* belongs to its job */
    Pb__DesiredFetch *wanted;
    struct peer_link_files files; /* borrowed; outlives the job */
    /* results */
    Pb__ShardCopy **copies; /* of each part that was wanted: all are here */
    size_t copies_count;
    bool came;                   /* something was fetched; else it all was here already */
    char note[VAULT_FETCH_NOTE]; /* from whom, and whose bytes were not right */
};

/* Copies wanted. */
struct vault_fetch *vault_fetch_create(const Pb__DesiredFetch *wanted,
                                       const struct peer_link_files *files);
void vault_fetch_destroy(struct vault_fetch *fetch); /* NULL is fine */
/* job->done_bytes grows, job->stop ends it. STATUS_DATA_LOSS: a part that nobody has as it was
 * committed; EXHAUSTED: no room here; CANCELLED; others: it may go better another time. The text
 * names node and part. */
enum status vault_fetch_run(struct vault_job *job, struct error *err) MUST_CHECK;
