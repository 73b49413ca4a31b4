/* restart.h - relaunches: what a failure costs, and those that an agent made by itself.
 *
 * Loop thread, inside a turn. A gang that lives on one node is given an allowance of incarnations
 * with its launch: as many as the job's budget has left. While no leader answers its agent may use
 * them up. When it is back its word of a higher incarnation is worked in once: the attempt's row
 * holds the number reached, in the transaction that charges the budget. */
#pragma once
#include "daemon/hub.h"

bool restart_is_charged(Pb__Reason__Code code); /* to the job's budget */
uint64_t restart_backoff_ms(const Pb__Restart *restart, uint32_t failures);
void restart_grant(const struct job *job, Pb__Attempt *row); /* to an attempt being made */
bool restart_is_allowed(const Pb__Attempt *row);
Pb__Allowance *restart_allowance(const struct job *job, struct arena *arena); /* NULL: none */
/* Before anything else that the node says is judged: did it restart gangs in place? */
void restart_run(struct node *node);
