/* fake_store.h - the daemon's store in memory: deterministic, and it fails when told to.
 *
 * Loop thread. Every answer comes in a later turn of the loop. Rows stay when the core that led is
 * gone: a new one leads the same store, as after a restart. The store must outlive its core. */
#pragma once
#include "daemon/store.h"
#include "proto/pb.h"

struct store *fake_store_create(struct loop *loop);
/* The nth next commit of the lane (1: the next one) ends with st. With STATUS_UNKNOWN the store is
 * away at once, and applied says whether the batch became durable; else nothing does. */
void fake_store_fail(struct store *store, enum store_lane lane, uint64_t nth, enum status st,
                     bool applied);
/* Commits and questions are answered UNAVAILABLE while it is away; the core is told. */
void fake_store_set_usable(struct store *store, bool usable);
void fake_store_fence(struct store *store); /* a newer term leads */
/* Puts a row there as an earlier daemon would have. Copies it. */
void fake_store_put(struct store *store, enum change_kind kind, const ProtobufCMessage *row);
size_t fake_store_count(const struct store *store, enum change_kind kind);
/* By the row's key as text ("7", "7/1", "n1"); a loan until it is written again. */
const ProtobufCMessage *fake_store_find(const struct store *store, enum change_kind kind,
                                        const char *key);
uint64_t fake_store_commits(const struct store *store);
