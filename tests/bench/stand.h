/* stand.h - a whole Rondo of one entry: `rondod dev` with agents and a PostgreSQL of its own, in a
 * private directory, with fsync on.
 *
 * One thread, blocking. stop leaves no process and no file: jobs are cancelled, the daemon ends,
 * what still names the directory is killed, the directory goes. */
#pragma once
#include "base/mem.h"
#include "proto/pb.h"
#include "tests/bench/bench.h"
#include <sys/types.h>

struct control;
struct stand {
    struct bench *bench;
    char *dir;   /* all of it */
    char *ctl;   /* context directory for rondoctl */
    char *probe; /* copies that any user may run */
    char *points;
    char *fifo;     /* not made yet */
    char *database; /* connection text of the daemon's own database */
    pid_t daemon;
    struct control *control;
};
struct stand_cpu { /* consumed so far, ms */
    double daemon, agents, postgres;
};

enum status stand_start(struct bench *bench, uint32_t agents, uint32_t slots, struct stand **out,
                        struct error *err) MUST_CHECK;
void stand_stop(struct stand *stand); /* NULL is fine */
void stand_cpu(const struct stand *stand, struct stand_cpu *out);
pid_t stand_agent(const struct stand *stand, const char *name); /* 0: none */
/* Prints name.cpu_daemon_ms and so on: what `count` operations cost since `before`. */
void stand_note_cpu(const struct stand *stand, const char *name, const struct stand_cpu *before,
                    double count);
SCOPED_DESTRUCTOR(struct stand *, stand_stop)
