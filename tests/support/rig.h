/* rig.h - a daemon core over simulated time and database, with scripted agents: for unit tests of
 * the core.
 *
 * A scripted agent (rig_node) answers nothing by itself: the test reads what the core desires and
 * says what happened. */
#pragma once
#include "daemon/core.h"
#include "proto/pb.h"
#include "tests/support/sim_store.h"

struct rig {
    struct sim *sim;
    struct sim_db *db;
    struct sim_process *process;
    struct store *store;
    struct core *core;
    bool started, fenced;
    bool node_vaults;   /* nodes that join: their vaults are their own */
    uint32_t peer_port; /* and serve each other there; 0: they do not */
    uint64_t calls;     /* numbers request ids */
    struct rig_node **nodes;
    size_t nodes_count;
};
struct rig_node {
    struct agent_link link; /* first */
    struct rig *rig;
    char name[32];
    uint32_t slots;
    bool connected, closed;
    uint64_t seq, acked, bulk_acked;
    Pb__Desired *desired; /* last one; NULL: none yet */
    Pb__Launch *launch;   /* last one that came */
    char refused[200];
    unsigned char peer_key[32]; /* of its last welcome */
};
struct rig_answer { /* of a call */
    bool done;
    enum status st;
    struct error err;
    ProtobufCMessage *reply;
};

void rig_init(struct rig *rig, uint64_t seed);
void rig_fini(struct rig *rig);
/* Fixture of a test: one that logs nothing, of seed 1. */
int rig_setup(void **state);
int rig_teardown(void **state);
void rig_start(struct rig *rig); /* a daemon over the database that is there */
void rig_crash(struct rig *rig); /* kill -9 of it */
void rig_run(struct rig *rig, int64_t ms);
void rig_live(struct rig *rig, int64_t ms); /* the same, while connected agents keep their leases */

struct rig_node *rig_node_join(struct rig *rig, const char *name, uint32_t cpu_slots);
void rig_node_leave(struct rig_node *node);  /* connection lost */
void rig_node_rejoin(struct rig_node *node); /* same agent; says whole=true with nothing */
void rig_node_hello(struct rig_node *node);  /* the same, and says nothing yet */
/* The agent says of a worker that the core desires; report is whole when the first after a join. */
void rig_say(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt,
             Pb__ActualWorker__State state, int exit_code);
void rig_say_class(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt,
                   Pb__Reason__Code class); /* EXITED, for that reason */
/* Whatever the test likes; key and has_state are filled in. */
void rig_say_worker(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt,
                    Pb__ActualWorker *worker);
void rig_say_staged(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt,
                    int64_t step, int64_t samples);
/* The same of a sharded checkpoint; layout: of rank 0's part, NULL: it has none. */
void rig_say_part(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt, int64_t step,
                  const char *layout_digest, const char *layout);
void rig_say_sealed(struct rig_node *node); /* answers the first seal that is desired */
/* Answers the first verification that is desired, for the parts of `ranks`; error: what was found.
 */
void rig_say_verified(struct rig_node *node, uint32_t first, uint32_t ranks, const char *error);
void rig_say_deleted(struct rig_node *node); /* the first deletion */
/* It has the part of `rank` now, from another node. */
void rig_say_copy(struct rig_node *node, int64_t checkpoint, uint32_t rank);

/* A job of one role "main" with `workers` CPU workers; options may be changed through fn before it
 * is sent. Answers its id. */
int64_t rig_submit(struct rig *rig, uint32_t workers, void (*fn)(Pb__JobSpec *spec));
void rig_at_once_again(Pb__JobSpec *spec); /* fn: no back-off */
/* Sends any call and runs until it is answered (or 30 s passed). Free answer->reply. */
void rig_call(struct rig *rig, const ProtobufCMessage *request, struct rig_answer *answer);
enum status rig_cancel(struct rig *rig, int64_t job);
Pb__Job__State rig_state(struct rig *rig, int64_t job);
bool rig_wants(const struct rig_node *node, int64_t job, uint32_t rank,
               Pb__DesiredWorker__Want want);
