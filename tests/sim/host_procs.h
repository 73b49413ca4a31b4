/* host_procs.h - the processes of a simulated machine, and the launcher seam over them. They
 * outlive agents. */
#pragma once
#include "tests/sim/host.h"

struct launcher *host_procs_launcher(struct host *host, struct sim_process *process);
void host_procs_drop(struct host *host); /* the agent died: nobody hears of them */
void host_procs_fini(struct host *host); /* all of them, for good */
size_t host_procs_alive(const struct host *host);
void host_procs_fini_handles(struct cluster *cluster);
