/* save_chore.h - what agents are asked to do for a checkpoint: seal, verify, delete.
 *
 * Loop thread. Derived from the state, so it can be counted anew at any time: whole ones are to be
 * sealed, the newest committed one of a job is to be read again, dead ones are to be deleted. On a
 * shared vault one node does it, that of the first part; on `node` vaults every node that has a
 * part does it for its own, and the state changes when all have answered. */
#pragma once
#include "daemon/hub.h"

void save_chore_update(struct save *save);
void save_chore_update_all(struct job *job);
void save_chore_recount(struct hub *hub); /* after a load or an undone turn */
void save_chore_reset(struct save *save); /* nobody has answered */
/* That node has done it. True: so have all that have to. */
bool save_chore_answered(struct save *save, const char *node);
/* Something to seal or delete: its row is needed. */
bool save_chore_is_due(const struct job *job);
/* The chores of one node, for its desired set. */
void save_chore_fill(const struct node *node, Pb__Desired *out, struct arena *arena);
void save_chore_verified(struct node *node, const Pb__ActualVerified *verified);
/* Reads it again, also when it was VERIFIED. */
enum status save_chore_verify(struct save *save, const char *actor, struct error *err) MUST_CHECK;
