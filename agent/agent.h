/* agent.h - the agent's core: what a node runs, and what it tells the daemon of it.
 *
 * Loop thread only. Sees the world through seams (loop, files, vaults, sockets, launcher, devices,
 * uplink): the simulator links these very objects. Borrows every seam. At a crash destroy the seams
 * first (they then call nobody), then the agent; workers run on, and a new agent over the same
 * state directory takes them up. */
#pragma once
#include "agent/config.h"
#include "agent/files.h"
#include "agent/inventory.h"
#include "agent/launcher.h"
#include "agent/sock.h"
#include "agent/uplink.h"
#include "agent/vault_pool.h"
#include "base/loop.h"
#include <stdbool.h>

struct agent;
struct agent_options { /* pointers are borrowed until destroy */
    struct loop *loop;
    struct files *files;
    struct vault_pool *vaults;
    struct socks *socks;
    struct launcher *launcher;
    struct inventory *inventory;
    struct uplink *uplink;
    const struct agent_config *config;
    const char *boot_id, *hostname, *address;
    uint64_t memory_mib;
    uint32_t peer_port; /* parts of checkpoints are given to other nodes here; 0: they are not */
    void (*peer_key)(void *arg, const unsigned char *key, size_t len); /* NULL: likewise */
    bool root;                                                         /* may become other users */
    const char *(*inherited)(const char *name);                        /* getenv; NULL: nothing */
    void (*failed)(void *arg, const struct error *err); /* cannot start: the disk refuses */
    void *arg;
};
struct agent *agent_create(const struct agent_options *options); /* starts to load at once */
void agent_destroy(struct agent *agent);                         /* NULL is fine */

/* Before the process ends as it was asked to: what only running workers need does not stay behind.
 */
void agent_leave(struct agent *agent);

struct agent_counts {
    uint32_t workers, running;
    uint64_t reports, messages, points_dropped, spool_bytes, spool_seq;
    bool up, loaded;
};
void agent_counts(const struct agent *agent, struct agent_counts *out);
void agent_devices_changed(struct agent *agent); /* inventory or health changed */
