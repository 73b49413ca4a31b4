/* launcher_shim_pool.h - a few threads for what may block when processes are started and ended:
 * files, user lookups, spawning, /proc, cgroups.
 *
 * Its own and not libuv's, so that digesting gigabytes never delays a start or a kill. submit and
 * destroy: loop thread. */
#pragma once
#include "base/loop.h"
#include "base/mailbox.h"

struct launcher_shim_pool;
struct launcher_shim_job { /* embedded in the caller's object */
    struct mail mail;
    struct list node;
    void (*run)(struct launcher_shim_job *job);  /* on a thread of the pool */
    void (*done)(struct launcher_shim_job *job); /* then on the loop; may free */
};

struct launcher_shim_pool *launcher_shim_pool_create(struct loop *loop, unsigned threads);
void launcher_shim_pool_submit(struct launcher_shim_pool *pool, struct launcher_shim_job *job);
/* Runs what waits and delivers it, but waits for no thread that hangs: such a one is left behind
 * with what it holds. NULL is fine. */
void launcher_shim_pool_destroy(struct launcher_shim_pool *pool);
