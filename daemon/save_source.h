/* save_source.h - parts of checkpoints that an agent has to fetch from other agents before its
 * workers start: from whom, and the tickets for it.
 *
 * Loop thread. Derived from rows at each desired set; tickets live for a while and are made anew
 * long before they end. What they are signed with is drawn by each leader for itself and told to
 * each serving agent when it connects: nothing of it is stored or logged. */
#pragma once
#include "daemon/hub.h"

/* Is a part of it on other nodes alone? */
bool save_source_is_needed(const Pb__Checkpoint *row, const char *node);
/* What the node's workers that are being started wait for. */
void save_source_fill(struct node *node, Pb__Desired *out, struct arena *arena);
/* An agent has come: whoever waits for its parts is told. */
void save_source_served(struct hub *hub);
/* Tickets that are to be made anew. */
void save_source_tick(struct hub *hub);
/* The key of tickets to that node; TICKET_KEY_BYTES. */
void save_source_key(const struct hub *hub, const char *node, unsigned char *out);
/* Why the job of that resume point cannot start elsewhere, for people. */
void save_source_explain(const struct hub *hub, const Pb__Checkpoint *row, char *out, size_t cap);
