/* pass_avoid.h - the nodes that a queued job stays away from, derived from its last attempts.
 *
 * Loop thread, inside a turn. Nothing is stored for it: the attempts' rows say where workers did
 * not start, or what broke them was the node; scheduler/avoid.h decides for how long that counts.
 */
#pragma once
#include "daemon/hub.h"
#include "scheduler/snapshot.h"

/* The set lives in the arena; now_us is wall time, as in the rows. Answers how many. */
size_t pass_avoid(const struct job *job, int64_t now_us, struct arena *arena,
                  const struct snapshot_avoid **out);
