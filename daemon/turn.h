/* turn.h - one turn at a time: inputs, decisions on drafts, a transaction, effects.
 *
 * Loop thread. While a transaction is in flight new inputs wait: that is the group commit. A
 * transaction that the database refuses is replayed unit by unit, so that one bad unit harms no
 * other; one whose outcome is unknown waits until the store can tell. */
#pragma once
#include "daemon/hub.h"

void turn_init(struct hub *hub);
void turn_wake(struct hub *hub);                    /* something waits: run a turn soon */
void turn_node(struct hub *hub, struct node *node); /* news of a node */
void turn_job(struct hub *hub,
              struct job *job);  /* a deadline of a job, or something it waits for */
void turn_pass(struct hub *hub); /* the scheduler may find something to do */
void turn_store_state(struct hub *hub, bool usable, bool fenced, const char *text);
