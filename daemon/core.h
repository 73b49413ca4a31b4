/* core.h - the daemon's heart: committed tables, one turn at a time from inputs to a transaction to
 * effects.
 *
 * Loop thread only. Sees the world through loop.h, store.h and agent_link below: the simulator
 * links these very objects.
 *
 * A turn: take what waits (calls, news of nodes, due timers, a scheduling pass) -> decide on drafts
 * of rows -> commit all drafts in one transaction -> drafts become the committed rows -> replies,
 * desired sets and watch events go out. Readers see committed rows only. While the store is away
 * calls are answered UNAVAILABLE, reads go on, leases are frozen. */
#pragma once
#include "base/loop.h"
#include "daemon/store.h"
#include "proto/pb.h"

struct core;

struct core_options {
    struct loop *loop;
    struct store *store; /* borrowed; outlives the core */
    uint64_t lease_ms;   /* a silent agent keeps its jobs this long */
    uint64_t heartbeat_ms;
    const char *default_vault;    /* name; NULL: "default" */
    uint32_t ended_max;           /* ended jobs kept in memory */
    uint32_t queued_max;          /* more submits are refused */
    void (*on_fenced)(void *arg); /* a newer term leads: exit */
    void *on_fenced_arg;
};
struct core *core_create(const struct core_options *options);
/* Leads and loads; done runs once, when calls are served or with the failure. */
void core_start(struct core *core, void (*done)(void *arg, enum status st, const struct error *err),
                void *arg);
void core_destroy(struct core *core); /* pending calls are answered CANCELLED; NULL is fine */

/* --- Calls that change state. The request is copied. done runs exactly once, later. reply is a
 * loan. */
typedef void (*core_done)(void *arg, enum status st, const struct error *err,
                          const ProtobufCMessage *reply);
/* Request types: SubmitRequest, SubmitManyRequest, CancelRequest, HoldRequest, SetNodeRequest (by
 * descriptor), CodeRow (stores code). */
void core_call(struct core *core, const char *actor, const ProtobufCMessage *request,
               core_done done, void *arg);

/* --- Agents. A link is one agent's pair of streams as the transport sees it. */
struct agent_link;
struct agent_link_ops {
    void (*control)(struct agent_link *link, const Pb__AgentDown *message);
    void (*bulk)(struct agent_link *link,
                 const Pb__BulkDown *message); /* dropped when the bulk stream is not up */
    void (*close)(struct agent_link *link, const char *why); /* core_agent_gone follows, later */
};
struct agent_link {
    const struct agent_link_ops *ops;
    struct node *node; /* the core's; NULL until accepted */
};
/* node is the name in the certificate: the hello must say the same. Refusals are sent and the link
 * closed. */
void core_agent_hello(struct core *core, struct agent_link *link, const char *node,
                      const Pb__Hello *hello);
void core_agent_up(struct core *core, struct agent_link *link, const Pb__AgentUp *message);
void core_agent_bulk(struct core *core, struct agent_link *link,
                     const Pb__BulkUp *message); /* batches; log chunks are not for here */
/* The bulk stream came up: send its acknowledgement position. Answers the stored mark. */
uint64_t core_agent_bulk_mark(struct core *core, struct agent_link *link, const char *spool_id);
void core_agent_gone(struct core *core, struct agent_link *link);

/* --- Reading committed state. Loans end at the next turn of the loop. */
const Pb__Job *core_job(const struct core *core, int64_t id);
/* QUEUED: why it waits now (derived, never stored); NULL: not known yet, or it does not wait. */
const Pb__Reason *core_job_wait(const struct core *core, int64_t id);
/* Newest first: pass 0 to begin, then the last id seen; NULL at the end. */
const Pb__Job *core_job_before(const struct core *core, int64_t id);
const Pb__Attempt *core_attempt(const struct core *core, int64_t job, uint32_t number);
size_t core_attempts(const struct core *core, int64_t job, const Pb__Attempt **out,
                     size_t max); /* oldest first; returns how many there are */
size_t core_checkpoints(const struct core *core, int64_t job, const Pb__Checkpoint **out,
                        size_t max); /* newest first */
const Pb__Checkpoint *core_checkpoint(const struct core *core, int64_t id);
/* Have agents something to do for it now: seal, read again, delete? */
bool core_checkpoint_due(const struct core *core, int64_t id);
/* Is an attempt of the job's under way? Its number; 0: none is. */
uint32_t core_job_open(const struct core *core, int64_t id);
/* What retention says of each committed checkpoint of the job, oldest first; why: for people.
 * Returns how many there are. */
size_t core_retention(const struct core *core, int64_t job, const Pb__Checkpoint **rows, bool *keep,
                      const char **why, size_t max);
size_t core_nodes(const struct core *core, const Pb__Node **out, size_t max);
/* What agents said last of a worker; NULL: nothing. */
const Pb__ActualWorker *core_worker(const struct core *core, int64_t job, const char *role,
                                    uint32_t rank, uint32_t attempt);
void core_node_use(const struct core *core, const char *node, uint32_t *devices_used,
                   uint32_t *workers);
/* The link of a connected node; NULL. For log relays. */
struct agent_link *core_node_link(const struct core *core, const char *node);
/* Highest step and samples stored for the job's current attempt (rank 0 of the first role). */
void core_progress(const struct core *core, int64_t job, int64_t *step, int64_t *samples);

/* Could the nodes in service ever hold such a job, if idle? If not, why: for people. The spec has
 * passed job_check. */
bool core_fits(const struct core *core, const Pb__JobSpec *spec, char *why, size_t cap);

/* Committed events kept in memory, in order: those with seq > after. Returns how many were written;
 * *oldest is the oldest kept seq. */
size_t core_events(const struct core *core, int64_t after, const Pb__Event **out, size_t max,
                   int64_t *oldest);

/* Called after each commit with the events that it made (in order); jobs' new rows are readable. */
struct core_watch;
struct core_watch *
core_watch_add(struct core *core,
               void (*fn)(void *arg, const Pb__Event *const *events, size_t count), void *arg);
void core_watch_remove(struct core *core,
                       struct core_watch *watch); /* allowed inside fn; NULL is fine */

/* --- Health. */
struct core_health {
    bool loaded, store_usable, fenced;
    char store_text[240];
    uint64_t term;
    const char *cluster;
    int64_t last_pass_us; /* loop_now_us of the last scheduling pass that really ran; 0: none */
    int64_t last_commit_us;
    int64_t stale_ms; /* age of what reads see: 0 while the store is usable */
    uint32_t nodes, nodes_healthy, jobs_active, jobs_queued;
    uint64_t commits, commit_failures, turns, passes, inputs_waiting, points_stored, events_made;
    uint64_t commit_us_last;
    uint64_t audits, drifts; /* recounts of use from the rows; nodes that differed */
    uint64_t points_refused; /* rows of points that the database refused; lost, counted */
    uint64_t saves_committed, saves_torn, saves_damaged, saves_verified;
    uint64_t save_bytes, save_us; /* of committed ones: bytes, and from the first part to there */
    uint64_t persists, persist_bytes_left; /* handed over to agents, not yet in a vault */
};
void core_health(const struct core *core, struct core_health *out);
