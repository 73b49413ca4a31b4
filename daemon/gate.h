/* gate.h - "save at step S", "stop at step S": the same answer on every rank. The daemon's side of
 * worker/page.h.
 *
 * Loop thread, inside a turn. A gate is PREPAREd at a step some way ahead; when every rank has
 * accepted it is ARMed, when any has refused it is DROPped and tried again further ahead. Number,
 * step and phase are stored before they are sent: while the stored phase is PREPARE no rank has
 * been told anything, so dropping is always safe. That is what becomes of a question when a rank
 * ends without having accepted: it may have gone past the step. A rank that had ended before the
 * question was asked is not waited for. */
#pragma once
#include "daemon/hub.h"

void gate_schedule(struct job *job); /* sets job->save_at_us by the checkpoint policy */
void gate_save_due(struct job *job);
bool gate_stop(struct job *job);      /* false: some rank does not use the SDK */
void gate_review(struct job *job);    /* answers may be complete */
void gate_restarted(struct job *job); /* a new incarnation of the gang knows of no question */
void gate_place_ends(struct job *job, size_t place); /* before it is marked so */
/* What to send to a worker of the job; false: none. */
bool gate_fill(const struct job *job, Pb__Gate *out);
