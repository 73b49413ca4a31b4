/* gang_inner.h - what the files of gang.h share. */
#pragma once
#include "agent/gang.h"

#define GANG_NAME_CAP 48

struct gang { /* one that is not in its first incarnation, or about to leave it */
    char name[GANG_NAME_CAP];
    Pb__GangFile *file; /* NULL: still in the first */
    Pb__GangFile *next; /* on its way to the disk */
    uint64_t told_seq;  /* the report of this connection that told of it; 0: none yet */
    bool busy;          /* its file is being written or taken away */
    int64_t retry_us;
};
struct gangs {
    struct agent *agent;
    struct map *all; /* name -> struct gang */
    char *dir;
};
struct gang_look { /* how all workers of one incarnation are */
    size_t count, alive;
    bool barred; /* somebody has said that it shall end, or it ended in a way that is not ours */
    int64_t last_end_us;
    const struct worker *first; /* that failed; NULL: none */
    Pb__ActualWorker failure;   /* how */
};
bool gang_has(const Pb__WorkerKey *key, const struct worker *worker); /* incarnation and all */
void gang_name(const Pb__WorkerKey *key, char out[GANG_NAME_CAP]);
struct gang *gang_obtain(struct gangs *gangs, const char *name); /* NULL: too many */
void gang_remove_file(const struct gangs *gangs, const char *name);
/* The gang is what its file says: older workers are let go of, those that lack are made. */
void gang_supersede(const struct gangs *gangs, const struct gang *gang);
void gang_make_workers(const struct gangs *gangs, const struct gang *gang);
/* gang_next.c: pure. What the next incarnation will be; before NULL: this is the first. */
Pb__GangFile *gang_next_file(const struct agent *agent, const Pb__GangFile *before,
                             const struct gang_look *look);
