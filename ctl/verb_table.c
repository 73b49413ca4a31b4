/* verb_table.c - the verbs in the order of --help. Any thread; const. */
#include "ctl/cmd.h"
#include "ctl/verb.h"

const struct verb *const verb_table[] = {
    &cmd_submit, &cmd_jobs,    &cmd_show,        &cmd_cancel,     &cmd_hold,    &cmd_release,
    &cmd_logs,   &cmd_metrics, &cmd_checkpoints, &cmd_checkpoint, &cmd_fsck,    &cmd_events,
    &cmd_nodes,  &cmd_cordon,  &cmd_uncordon,    &cmd_status,     &cmd_version, NULL};
