/* cmd.h - every verb, a noun or two words a file; verb_table.c puts them in order. */
#pragma once
#include "ctl/connect.h"
#include "ctl/verb.h"

extern const struct verb cmd_submit, cmd_jobs, cmd_show, cmd_cancel, cmd_hold, cmd_release,
    cmd_logs, cmd_metrics, cmd_checkpoints, cmd_nodes, cmd_cordon, cmd_uncordon, cmd_events,
    cmd_status, cmd_version, cmd_fsck;

/* The noun, and its verbs. */
extern const struct verb cmd_checkpoint, cmd_checkpoint_list, cmd_checkpoint_show,
    cmd_checkpoint_verify, cmd_checkpoint_diff, cmd_checkpoint_export, cmd_checkpoint_import,
    cmd_checkpoint_reshard, cmd_checkpoint_pin, cmd_checkpoint_unpin, cmd_checkpoint_gc,
    cmd_checkpoint_du;
