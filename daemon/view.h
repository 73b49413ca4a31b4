/* view.h - what a caller may see of committed rows: shallow copies in an arena, secrets left out.
 *
 * Loop thread; pure but for the arena. Copies borrow from the rows, so they end with the row's
 * loan. Values of environment variables are shown to admins and to submitters of the job's project
 * only: to all others the names stay and the values are unset. */
#pragma once
#include "base/mem.h"
#include "daemon/core.h"
#include "rpc/identity.h"

SCOPED_DESTRUCTOR(struct arena *, arena_destroy)

/* who NULL: nobody that we know (the status endpoint). */
bool view_shows_env(const struct identity *who, const Pb__Job *job);
/* brief: without env and command. The reason of a job that waits is why it waits now. */
Pb__Job *view_job(struct arena *arena, const struct core *core, const struct identity *who,
                  const Pb__Job *job, bool brief);
/* Does the row pass the filter? NULL: all do. */
bool view_job_matches(const Pb__JobFilter *filter, const Pb__Job *job);
bool view_job_is_ended(const Pb__Job *job);
/* What agents said last of the attempt's workers, joined with where they were put. */
void view_workers(struct arena *arena, const struct core *core, const Pb__Attempt *attempt,
                  Pb__ShowJobReply *out);
void view_nodes(struct arena *arena, const struct core *core, Pb__ListNodesReply *out);

struct view_limits {
    int64_t now_us;      /* of the loop's clock */
    int64_t started_us;  /* the same clock */
    int64_t pass_ms_max; /* an older last pass is a failed check */
};
void view_status(struct arena *arena, const struct core *core, const struct view_limits *limits,
                 Pb__StatusReply *out);
