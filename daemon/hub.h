/* hub.h - what the nouns of the daemon core share. Private to the core: its files include it,
 * nobody else.
 *
 * One hub a daemon. Owns every struct job, node, save. Loop thread only. */
#pragma once
#include "base/list.h"
#include "base/map.h"
#include "daemon/core.h"
#include "daemon/draft.h"
#include "proto/text/text_format.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUB_UNITS_MAX    512    /* calls and news taken into one turn */
#define HUB_CALLS_MAX    20000  /* calls waiting; more are answered EXHAUSTED */
#define HUB_EVENTS_MAX   16384  /* committed events kept in memory */
#define HUB_REQUESTS_MAX 100000 /* answers kept for retries */
#define HUB_PASS_DEPTH   512    /* queued jobs looked at in one pass */

struct live { /* what we know of one worker of the current attempt, derived */
    bool up;  /* it has been seen RUNNING */
    bool joined, saving;
    uint64_t gate_number;
    int gate_phase; /* Pb__Gate__Phase that the rank answered */
    int64_t gate_step;
    int64_t step;     /* last reported */
    uint64_t fetched; /* of the checkpoint that it starts from */
};
struct job_metric { /* a value of the policy's keep_metric */
    uint32_t attempt;
    int64_t step;
    double value;
};
struct save { /* a checkpoint of a job */
    int64_t id;
    struct entry entry; /* Pb__Checkpoint */
    struct job *job;
    struct list node; /* in job->saves, oldest first */
    int64_t since_us;
    struct list
        chore;       /* in hub->chores: agents have something to do for it: seal, verify, delete */
    char **answered; /* nodes that have done it, in the state that it is in now */
    size_t answered_count;
};
struct attempt {
    struct entry entry; /* Pb__Attempt */
    struct list node;   /* in job->attempts, oldest first */
};
struct job {
    struct hub *hub;
    int64_t id;
    bool id_listed;     /* in hub->order */
    struct entry entry; /* Pb__Job */
    struct list attempts, saves;
    struct attempt *attempt; /* current or last; NULL: none yet */
    struct live *live;       /* of the current attempt, one a place */
    size_t live_count;
    struct loop_timer *timer;
    struct list due;        /* in hub->due */
    bool queued;            /* in hub->queue */
    uint64_t stop_grace_ms; /* of the stop under way; 0: the launch's own */
    int64_t start_by_us, limit_at_us, not_before_us, stop_by_us, settle_by_us, save_at_us,
        running_us;                   /* monotonic; 0: none */
    int64_t step, samples, rate_step; /* stored progress of the current attempt */
    int64_t rate_us;                  /* rank 0's own clock at rate_step; 0: none yet */
    double steps_per_s;
    unsigned gates_refused; /* in a row: a power of two */
    int64_t keep_look_us; /* wall time at which retention looks again; 0: when something happens */
    struct job_metric metrics[64]; /* the latest, a ring */
    size_t metrics_next;
    Pb__Reason wait; /* QUEUED: why it waits now; derived, never stored */
    char wait_text[200];
};
struct slot { /* one device of a node and who has it */
    char kind[32];
    uint32_t index;
    bool usable;   /* healthy as its agent says */
    int64_t owner; /* job; 0: free */
};
struct actual {
    Pb__ActualWorker *said;
    bool news;
};
struct node {
    struct hub *hub;
    struct entry entry;      /* Pb__Node */
    struct entry mark;       /* Pb__MarkRow */
    struct agent_link *link; /* NULL: not connected */
    char instance[64];
    struct map *actual; /* worker key as text -> struct actual */
    bool heard_whole;   /* a whole report came on this connection */
    bool whole_news;
    struct list staged, sealed, deleted, verified, copies; /* reports of saves not yet worked in */
    struct list gangs;                                     /* of restarts in place */
    int64_t fetch_renew_us; /* its tickets are to be made anew then; 0: it was given none */
    struct list news;       /* in hub->news */
    struct list in_turn;    /* in hub->turn_nodes */
    uint64_t seq_turn;      /* heard when the turn in flight looked */
    uint64_t seq_heard, seq_acked;
    struct slot *slots;
    size_t slots_count;
    uint64_t memory_used_mib;
    struct map *ports; /* port -> its job */
    uint32_t port_next;
    struct loop_timer *lease;
    int64_t lease_until_us;
    uint64_t revision;
    uint32_t persists; /* of its last heartbeat */
    uint64_t persist_bytes_left;
    struct map *residents; /* job id -> struct job with an attempt here that has not ended */
    struct map *launched;  /* worker key -> launch was sent on this connection */
    bool desired_dirty;
    bool gone_due, devices_news, stale_seen;
    bool welcomed;             /* its hello is durable and answered */
    Pb__ActualReport *devices; /* last word on their health */
    bool lost_due;             /* the lease ran out */
    bool inventory_changed;
    Pb__Hello *hello;   /* not yet answered */
    bool hello_in_turn; /* a turn has looked at it: the one that settles next answers it */
    struct list bulk,
        bulk_flying; /* struct reports_item: waiting, and in the transaction in flight */
    size_t bulk_points;
    uint64_t bulk_heard, bulk_acked;
    char bulk_spool[64];
    bool bulk_open;
};
struct event {
    struct entry entry; /* Pb__Event */
};
struct hub {
    struct core_options options;
    struct loop *loop;
    struct store *store;
    uint64_t term;
    char *cluster;
    unsigned char ticket_root[32]; /* of this process alone: see save_source.h */
    bool loaded, usable, fenced;
    char store_text[240];
    int64_t unusable_since_us, usable_since_us;

    struct map *jobs;   /* id -> struct job */
    struct job **order; /* by id, ascending */
    size_t order_count, order_cap;
    struct job **queue; /* QUEUED, in scheduling order */
    size_t queue_count, queue_cap;
    struct map *nodes;    /* name -> struct node */
    struct map *saves;    /* id -> struct save */
    struct map *projects; /* name -> struct entry */
    struct map *requests; /* id -> struct request */
    struct list requests_order;
    struct list chores;
    int64_t job_next, save_next, event_next;

    struct draft_set drafts;
    struct list calls;   /* struct call, waiting */
    struct list refused; /* struct call, to be told why by refuse_timer */
    struct loop_timer *refuse_timer;
    int64_t fetch_renew_us; /* the earliest of any node; 0: no node fetches */
    size_t calls_count;
    struct list news, due;
    bool pass_needed;
    struct list turn_calls, turn_nodes; /* of the turn in flight */
    size_t turn_units;
    struct loop_timer *turn_timer; /* turn_run; at once: a deferred call that dies with the hub */
    bool turn_scheduled, committing, single;
    size_t single_left;
    uint64_t batch_number[STORE_LANE_COUNT];
    struct batch batch;
    struct change *changes;
    size_t changes_cap;
    int64_t commit_since_us;
    bool outcome_unknown;

    struct batch bulk_batch;
    struct change *bulk_changes;
    size_t bulk_cap;
    bool bulk_committing, bulk_unknown;
    struct loop_timer *bulk_timer; /* reports_run */
    bool bulk_scheduled;
    struct loop_timer *tick;
    size_t traceback_bytes; /* in what agents said and no turn has settled */
    int64_t audited_us;

    struct event **events; /* ring of HUB_EVENTS_MAX */
    size_t events_first, events_count;
    struct event **fresh; /* drafted in this turn */
    size_t fresh_count, fresh_cap;
    struct list watches;
    bool watch_telling;
    int64_t event_mark; /* event_next when the turn began */
    struct core_health health;
    void (*started)(void *arg, enum status st, const struct error *err);
    void *started_arg;
};

static inline Pb__Job *job_view(const struct job *job)
{
    return (Pb__Job *)draft_view(&job->entry);
}
static inline Pb__Node *node_view(const struct node *node)
{
    return (Pb__Node *)draft_view(&node->entry);
}
static inline Pb__Attempt *attempt_view(const struct attempt *a)
{
    return (Pb__Attempt *)draft_view(&a->entry);
}
static inline Pb__Checkpoint *save_view(const struct save *save)
{
    return (Pb__Checkpoint *)draft_view(&save->entry);
}
#define HUB_NAME(type, value) enum_name(&pb__##type##__descriptor, (int)(value))
