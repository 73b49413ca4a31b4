/* actual.h - what the daemon is told: the actual set, staged and sealed checkpoints, devices.
 *
 * Loop thread. Level-triggered: after each connect the whole set goes up, then what changed, once a
 * turn. Staged, sealed and deleted entries belong to saves.h, which hands them out again until they
 * are acknowledged. A report is bounded: what does not fit goes with the next one. */
#pragma once
#include "agent/hub.h"

struct actual;
struct actual *actual_create(struct agent *agent);
void actual_destroy(struct actual *actual);               /* NULL is fine */
void actual_mark(struct actual *actual, const char *tag); /* this worker's entry changed */
void actual_mark_outbox(struct actual *actual);           /* a save, a seal or a delete did */
void actual_mark_devices(struct actual *actual);
void actual_gone(struct actual *actual, const Pb__WorkerKey *key); /* let go of, nothing is left */
/* What is said of a worker; a loan of its texts. */
struct worker;
void actual_describe(const struct worker *worker, Pb__ActualWorker *out);
void actual_whole(struct actual *actual); /* just connected */
void actual_down(struct actual *actual);
/* Devices of a worker that cannot be removed are given to nobody: count +1, or -1 when it is. */
void actual_quarantine(struct actual *actual, const Pb__Launch *launch, int change);
/* For Hello; a loan until the next call. */
const Pb__NodeInventory *actual_inventory(struct actual *actual);
