/* hub.h - what the agent's parts share: the seams and each other. Included by agent/ only.
 *
 * Owned by agent.c; members are set before any part runs and do not change. */
#pragma once
#include "agent/agent.h"
#include "agent/link.h"
#include "agent/pending.h"
#include "agent/spool.h"
#include "base/map.h"
#include "base/mem.h"

struct user { /* of this node, looked up once */
    char *name, *home;
    int64_t uid, gid;
};
struct agent {
    struct agent_options options;
    struct loop *loop;
    struct files *files;
    const struct agent_config *config;
    char *node, *state_dir, *work_dir, *ended_dir, *spool_id, *instance;
    struct link *link;
    struct spool *spool;
    struct actual *actual;
    struct saves *saves;
    struct code_cache *codes;
    struct logs *logs;
    struct looks *looks;
    struct ended *ended;
    struct gangs *gangs;
    struct spares *spares;
    struct map *workers;    /* tag -> struct worker, in the order they came */
    struct map *users;      /* name -> struct user */
    struct map *quarantine; /* "kind index" -> count of workers that hold it */
    struct loop_timer *watch_timer, *ready_timer;
    uint64_t revision; /* of the newest Desired */
    size_t adopting;
    uint64_t watch_ticks;
    struct list pending; /* arguments of calls under way */
    int64_t ready_until_us;
    bool loaded;
    Pb__NodeInventory *inventory; /* as told in the last hello */
};
