/* dev_agents.h - the agents that `rondod dev --agents N` keeps running on this machine.
 *
 * Loop thread; needs loop_uv. Agents are sessions of their own: they outlive a killed daemon, and
 * the next start finds them by pid, start time and boot id and goes on with them, never two of a
 * name. One that ends is started again, with back-off. Workers belong to their shims: stopping
 * agents leaves them alone. */
#pragma once
#include "base/loop.h"
#include "daemon/config.h"
#include "daemon/dev_dir.h"

struct dev_agents;
struct dev_agents_options {
    struct loop *loop;
    const struct dev_dir *dir;   /* outlives it */
    const struct config *config; /* outlives it */
    const char *server;          /* where the daemon listens, host:port */
};
enum status dev_agents_start(const struct dev_agents_options *options, struct dev_agents **out,
                             struct error *err) MUST_CHECK;
/* Asks all to end; done runs once, later, when they have or after some seconds. */
void dev_agents_stop(struct dev_agents *agents, void (*done)(void *arg), void *arg);
void dev_agents_destroy(struct dev_agents *agents); /* leaves them running; NULL is fine */
SCOPED_DESTRUCTOR(struct dev_agents *, dev_agents_destroy)
