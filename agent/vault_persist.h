/* vault_persist.h - what a worker left in a slot becomes its part of a checkpoint.
 *
 * Any thread; blocks as long as the bytes take. The slot is the worker's: its contents may be
 * anything and may change while they are read. So they go by pread through buffers of our own, each
 * block is compared with the slot's table of sums, and what is then in the vault is checked against
 * the layout: names, sizes, dtypes, offsets are exactly those of this rank. */
#pragma once
#include "agent/vault_pool.h"

/* job: vault, path, role, rank, uid, gid of the worker, source: the slot, step (-1: any), stop.
 * Results: part; nothing: there is nothing in it. STATUS_DATA_LOSS, INVALID: not what a worker of
 * ours writes; EXHAUSTED: no room in the vault; CANCELLED. */
enum status vault_persist_run(struct vault_job *job, struct error *err) MUST_CHECK;
