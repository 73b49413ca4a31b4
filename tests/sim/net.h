/* net.h - the simulated network between agents and the daemon: ordered streams that delay and
 * break, never reorder. */
#pragma once
#include "agent/uplink.h"
#include "tests/sim/host.h"

struct uplink *net_uplink_create(struct host *host, struct sim_process *process);
void net_break(struct host *host);             /* its streams end at both sides, a little later */
void net_daemon_died(struct cluster *cluster); /* all streams end at the agents' sides */
void net_fini(struct cluster *cluster);
