/* member.h - this process as a member of its role: who it is, and all that its calls share.
 *
 * One a process. Three locks, none taken while another is held: `report` around the record and the
 * file, `gate` around the gates, `ask` around the socket. A forked child is told from the member by
 * its pid before any lock is touched: a lock that fork copied may be held for ever. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "worker/alone.h"
#include "worker/ask.h"
#include "worker/gate.h"
#include "worker/record.h"
#include "worker/reports.h"
#include "worker/rondo.h"

struct member {
    atomic_int pid; /* of the process that joined; 0: nobody has */
    bool writer;    /* the reports file is ours */
    struct rondo_job job;
    char name[256], role[64], resume_dir[4096];
    int dir; /* RONDO_DIR; -1 when alone */
    int64_t start_us;
    struct page *page; /* shared with the agent, or one of our own */
    struct alone alone;

    pthread_mutex_t join_lock, report_lock, gate_lock, ask_lock;
    struct record record;
    struct reports reports;
    struct gate save, stop;
    bool stop_open;
    struct ask ask;
    atomic_int in_save, said_saving, stopping;
};
extern struct member member;

int member_join(const struct rondo_options *options);
/* Joined, and in the very process that joined. */
bool member_is_here(void);
/* The same, and it owns the reports file. */
bool member_is_writer(void);
/* Asks the agent; ms 0: ten minutes. 0, or the answer's status or RONDO_DEADLINE, negated and told.
 */
int member_ask(const struct ask_request *request, uint32_t ms, struct ask_answer *answer);
/* What the page says of a save that is under way. */
void member_set_in_save(int on);
void member_show_saving(void);
/* Sets rondo_error's text and returns -status. */
int member_fail(enum rondo_status status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int member_fail_errno(int problem, const char *what);
const char *member_error(void);
