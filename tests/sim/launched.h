/* launched.h - what must hold whenever a worker is launched, and what of it the database must know
 * in the end. */
#pragma once
#include "tests/sim/cluster.h"

/* proc is about to be added to its host. */
void launched_check(const struct host_proc *proc);
/* Everything has settled: the rows tell of what really ran. */
void launched_check_end(struct cluster *cluster);
