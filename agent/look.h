/* look.h - answers what the daemon asks of this node's vaults and slots: what lies there, and the
 * repairs that only a node can do.
 *
 * Loop thread; directories are looked through in the vault pool, piece by piece, none while a save
 * is being written. One list at a time: a new ask ends the one before. An ask has one answer, a
 * LIST and each MORE a piece of it. */
#pragma once
#include "agent/hub.h"

struct looks;
struct looks *looks_create(struct agent *agent);
void looks_destroy(struct looks *looks); /* NULL is fine */
void looks_ask(struct looks *looks, const Pb__VaultAsk *ask);
void looks_down(struct looks *looks); /* the stream is gone, its asks with it */
