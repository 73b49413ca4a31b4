/* cmd_checkpoint.c - the noun: what can be done with checkpoints. Any thread; const. */
#include "ctl/cmd.h"

static const struct verb *const verbs[] = {
    &cmd_checkpoint_list,   &cmd_checkpoint_show,   &cmd_checkpoint_verify,  &cmd_checkpoint_diff,
    &cmd_checkpoint_export, &cmd_checkpoint_import, &cmd_checkpoint_reshard, &cmd_checkpoint_pin,
    &cmd_checkpoint_unpin,  &cmd_checkpoint_gc,     &cmd_checkpoint_du,      NULL};

const struct verb cmd_checkpoint = {
    .name = "checkpoint",
    .summary = "Lists, shows, verifies, compares, copies and keeps checkpoints.",
    .examples = "  rondoctl checkpoint list charlm\n"
                "  rondoctl checkpoint show charlm@120\n"
                "  rondoctl checkpoint verify --vault /srv/vault\n"
                "  rondoctl checkpoint export charlm ./charlm-hf\n"
                "\n"
                "A CHECKPOINT is an id, JOB@STEP, or JOB@ (the newest usable one); or, with no\n"
                "daemon, its directory. With --vault DIR: a path below DIR, an id, JOB@STEP.\n"
                "\n"
                "Exit codes: 0 done, 1 the answer is no (damage, or a difference), 2 wrong usage,\n"
                "3 daemon not reached, 4 refused or not found, 5 something broke.\n",
    .verbs = verbs};
