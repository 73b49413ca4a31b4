/* job_check.h - is this job spec one that may reach the scheduler, and its defaults made explicit.
 *
 * Any thread; pure. Shared by rondoctl (before anything is sent) and the daemon (before anything is
 * stored). Each problem is one line "roles.0.workers: 0 is out of range 1..100000, nearest 1". */
#pragma once
#include "base/error.h"
#include "base/text.h"
#include "proto/pb.h"

enum {
    JOB_CHECK_NAME_MAX = 253,
    JOB_CHECK_ROLES_MAX = 16,
    JOB_CHECK_WORKERS_MAX = 100000, /* of a role, and of all roles together */
    JOB_CHECK_ARGS_MAX = 4096,
    JOB_CHECK_VARIABLE_MAX = 1024, /* bytes of the name of an environment variable */
    JOB_CHECK_STRING_MAX = 131000, /* one argument, or NAME=value: the kernel's limit is 131,072 */
    JOB_CHECK_BLOCK_MAX = 512 << 10, /* environment of a role; arguments of a role */
    JOB_CHECK_ENV_MAX = 10000,
    JOB_CHECK_LABELS_MAX = 64,
    JOB_CHECK_BYTES_MAX = 4 << 20 /* of the packed spec */
};

/* STATUS_INVALID when there is any problem. problems NULL: not wanted. */
enum status job_check(const Pb__JobSpec *spec, struct text *problems) MUST_CHECK;
/* For a spec that passed: sets every default, workers_min and workers_max; adds the sub-messages
 * resources, restart, phases, success and checkpoint (whose defaults mean "none"). Doing it twice
 * changes nothing. */
void job_check_fill(Pb__JobSpec *spec);
