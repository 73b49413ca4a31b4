/* cmd.h - every verb, a noun a file; verb_table.c puts them in order. */
#pragma once
#include "ctl/connect.h"
#include "ctl/verb.h"

extern const struct verb cmd_submit, cmd_jobs, cmd_show, cmd_cancel, cmd_hold, cmd_release,
    cmd_logs, cmd_metrics, cmd_checkpoints, cmd_nodes, cmd_cordon, cmd_uncordon, cmd_events,
    cmd_status, cmd_version;
