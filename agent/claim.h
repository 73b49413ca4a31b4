/* claim.h - a device is one worker's at a time, whoever has promised it to whom.
 *
 * Loop thread only; looks and changes nothing. The daemon gives devices away once their worker is
 * known to be gone. A gang that its agent has restarted meanwhile may hold them still, until the
 * daemon's next word takes it away. */
#pragma once
#include "agent/worker.h"

/* Another worker that may have a process and holds a device of this one. NULL: none does. */
const struct worker *claim_holder(const struct worker *worker);
