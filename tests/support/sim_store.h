/* sim_store.h - a simulated database and the daemon's connection to it.
 *
 * struct sim_db survives daemons: rows by key, leadership, batches, points. sim_store_create gives
 * one daemon's struct store over it. Faults by chance: a commit may be slow, refused as
 * unavailable, or lose its connection with the outcome unknown, done or not. */
#pragma once
#include "base/map.h"
#include "daemon/store.h"
#include "tests/support/sim.h"

struct sim_db;
struct sim_db *sim_db_create(struct sim *sim);
void sim_db_destroy(struct sim_db *db);
void sim_db_faults(struct sim_db *db,
                   uint32_t unknown_per_mille); /* of commits; 0: none from now on */
void sim_db_away(struct sim_db *db, bool away); /* stopped, or back */
/* The row of that kind and key ("7", "7.2", "node1"), unpacked; NULL: none. Caller frees. */
ProtobufCMessage *sim_db_row(const struct sim_db *db, enum change_kind kind, const char *key);
/* Every row of a kind, unpacked, one at a time (freed after fn). */
void sim_db_each(const struct sim_db *db, enum change_kind kind,
                 void (*fn)(void *arg, const ProtobufCMessage *row), void *arg);

struct store *sim_store_create(struct sim_db *db, struct sim_process *process);
/* The daemon died: nothing of the connection is heard any more; commits under way may or may not
 * happen. */
void sim_store_drop(struct store *store);
size_t sim_db_points(const struct sim_db *db); /* reports stored */
