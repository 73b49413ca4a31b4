/* launcher_shim_spare.h - shims that run already and wait for a worker's directory: a start then
 * costs a message and the worker's own exec, not the shim's.
 *
 * A waiting shim knows nothing and holds nothing but its socket; it ends when the socket closes, so
 * it never outlives the agent. New ones are made on the pool while nothing starts. Loop thread
 * only, but for launcher_shim_spare_send. */
#pragma once
#include "base/loop.h"
#include <stdbool.h>
#include <sys/types.h>

struct launcher_shim_pool;
struct launcher_shim_spare {
    pid_t pid;
    int pidfd, socket; /* the owner's to close */
};
struct launcher_shim_spares;

struct launcher_shim_spares *launcher_shim_spares_create(struct loop *loop,
                                                         struct launcher_shim_pool *pool,
                                                         const char *shim_path, unsigned count);
void launcher_shim_spares_stop(struct launcher_shim_spares *spares);    /* makes no more */
void launcher_shim_spares_destroy(struct launcher_shim_spares *spares); /* after the pool's */
/* False: none is ready. */
bool launcher_shim_spares_take(struct launcher_shim_spares *spares,
                               struct launcher_shim_spare *out);

/* Any thread. Makes it the shim of dir, with the descriptors of shim_wire.h; the socket is closed
 * either way. False: it is gone, reaped, its pidfd closed. */
bool launcher_shim_spare_send(struct launcher_shim_spare *spare, const char *dir, int ready,
                              int request);
void launcher_shim_spare_end(struct launcher_shim_spare *spare); /* kills, reaps, closes */
