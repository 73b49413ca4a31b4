/* save_copy.h - where the bytes of each part of a checkpoint live, and how durable that is.
 *
 * Loop thread. Kept in the checkpoint's row, and as rows of the table shard_copy for people. */
#pragma once
#include "daemon/hub.h"

/* The part is on the node that wrote it. Inside a turn. */
void save_copy_staged(struct save *save, const Pb__CheckpointPart *part);
/* What a vault of that name outlives on that node. */
Pb__ShardCopy__Durability save_copy_durability(const struct hub *hub, const char *node,
                                               const char *vault);
/* A node has got a part that it did not write, or has lost one. Inside a turn. */
void save_copy_run(struct node *node, const Pb__ActualCopy *said);
/* Is it spread over the disks of nodes, each of which has but its own parts? */
bool save_copy_is_apart(const Pb__Checkpoint *row);
bool save_copy_is_of(const Pb__ShardCopy *copy, const Pb__CheckpointPart *part);
/* Is its agent connected, and gives parts to others? NULL: no. */
bool save_copy_serves(const struct node *node);
/* Whose agent, connected now, has that part and serves it to others; NULL: nobody's. */
const struct node *save_copy_source(const struct hub *hub, const Pb__Checkpoint *row, size_t part);
/* Does that node have the part itself? */
bool save_copy_is_on(const Pb__Checkpoint *row, size_t part, const char *node);
/* Can every part be had from somewhere by a node that has none of them? */
bool save_copy_all_served(const struct hub *hub, const Pb__Checkpoint *row);
