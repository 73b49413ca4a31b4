/* save_inner.h - what the files of save.h share. For save*.c only. */
#pragma once
#include "daemon/save.h"

#define SAVE_STATE(x) PB__CHECKPOINT__STATE__##x

Pb__Checkpoint *save_edit(struct save *save);
/* The one door to a checkpoint's state: version, event, chore. text: why, for people. */
void save_set_state(struct save *save, Pb__Checkpoint__State to, const char *text);
void save_event(const struct save *save, const char *kind, Pb__Checkpoint__State from,
                const char *text);
/* A later attempt's is newer whatever its step. Within one the step counts, not the order in which
 * rows were made: two parts of a rank are on their way at once. */
bool save_is_newer(const Pb__Checkpoint *a, const Pb__Checkpoint *b);
bool save_is_usable(const struct save *save);
void save_nodes_dirty(const struct save *save); /* their agents get a new desired set */
