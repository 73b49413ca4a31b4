/* checkpoint_tensors.h - the tensors of a sharded checkpoint and how they are cut, from its layout.
 *
 * Loop thread; reads the manifest and layout.json alone. */
#pragma once
#include "base/text.h"
#include "checkpoint/layout.h"
#include "ctl/checkpoint_at.h"

/* A table, and a line of what was left out. Exit codes; failures are said on stderr. */
int checkpoint_tensors_say(const struct checkpoint_at *at, size_t limit);
/* A JSON list. */
int checkpoint_tensors_json(const struct checkpoint_at *at, size_t limit, struct text *out);
/* "whole on rank 3", "8 pieces on 4 ranks, dims 0 1". Pure. */
void checkpoint_tensors_layout(const struct layout_table *table, size_t tensor, struct text *out);
