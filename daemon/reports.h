/* reports.h - points from agents to the store, on a lane of their own: they never delay a job's
 * state.
 *
 * Loop thread. Agents number what they send; the stored mark advances in the transaction that
 * stores the points; only then is it acknowledged. What is sent twice is dropped by its number. */
#pragma once
#include "daemon/hub.h"

void reports_store_back(
    struct hub *hub); /* the store is usable again: go on, settle an unknown outcome */
void reports_forget(
    struct node *node); /* what waits and was not stored: the agent sends it again */
void reports_init(struct hub *hub);
void reports_fini(struct hub *hub);
