/* place.h - simple placement: each job in turn, whole gang or nothing, nodes filled first-fit.
 *
 * Pure: a snapshot in, a plan with reasons out; no I/O, no clock. Any thread. The same snapshot
 * gives the same plan. A job that does not fit is skipped (smaller ones behind it may start); of
 * equal shapes only the first is tried in a pass. Cost: jobs x nodes for distinct shapes. */
#pragma once
#include "scheduler/snapshot.h"

struct plan place_pass(const struct snapshot *snapshot, struct arena *arena);
