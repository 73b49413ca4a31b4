/* env.h - the environment variables that an agent gives a worker, beside those that torchrun gives.
 *
 * Read by librondo at rondo_join; set by the agent. Part of the wire format between them: names and
 * meanings never change, later versions only add. A missing variable has the stated default. */
#pragma once

#define ENV_DIR                                                                                    \
    "RONDO_DIR" /* the worker's directory: reports, page, sock. Unset: outside Rondo               \
                 */
#define ENV_JOB         "RONDO_JOB"         /* decimal id; 0 */
#define ENV_JOB_NAME    "RONDO_JOB_NAME"    /* "" */
#define ENV_ATTEMPT     "RONDO_ATTEMPT"     /* 0 */
#define ENV_INCARNATION "RONDO_INCARNATION" /* 0 */
#define ENV_ROLE        "RONDO_ROLE"        /* "trainer" */
/* The attempt's start on this node's CLOCK_MONOTONIC, in microseconds: reports count from it.
 * Default: the join. */
#define ENV_START_US "RONDO_START_US"
/* The committed checkpoint to resume from: its directory (absolute; a part lies in
 * <dir>/<role>-<rank>), step, samples and id. Unset or empty: start from the beginning. */
#define ENV_RESUME_DIR        "RONDO_RESUME_DIR"
#define ENV_RESUME_STEP       "RONDO_RESUME_STEP"
#define ENV_RESUME_SAMPLES    "RONDO_RESUME_SAMPLES"
#define ENV_RESUME_CHECKPOINT "RONDO_RESUME_CHECKPOINT"
/* Directories of this node's memory with slots (checkpoint/slot.h) that may hold copies of that
 * checkpoint's files, ':' between them. Default: none. */
#define ENV_RESUME_SHM "RONDO_RESUME_SHM"
/* checkpoint.every_steps of the job; 0: off. */
#define ENV_EVERY_STEPS "RONDO_EVERY_STEPS"
/* For programs without the SDK: the directory of this attempt in which checkpoint.watch looks for
 * its pattern. Not read by librondo. */
#define ENV_ATTEMPT_DIR "RONDO_ATTEMPT_DIR"

/* Outside Rondo only: where checkpoints go; "checkpoints" in the working directory. */
#define ENV_CHECKPOINT_DIR "RONDO_CHECKPOINT_DIR"

/* torchrun's: the rank in the role, the workers of the role, the same on this node. */
#define ENV_RANK        "RANK"
#define ENV_WORLD       "WORLD_SIZE"
#define ENV_LOCAL_RANK  "LOCAL_RANK"
#define ENV_LOCAL_WORLD "LOCAL_WORLD_SIZE"
