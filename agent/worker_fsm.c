/* worker_fsm.c - see worker_fsm.h. */
#include "agent/worker_fsm.h"
#include "base/mem.h"

#define S(x)   PB__ACTUAL_WORKER__STATE__##x
#define EV(x)  WORKER_EV_##x
#define ACT(x) WORKER_ACT_##x
/* clang-format off */
static const struct worker_rule rules[] = {
    /* from          event           to             action           shown to the operator */
    { S(PENDING),    EV(BEGIN),      S(PREPARING),  ACT(PREPARE),    "preparing its directory" },
    { S(PENDING),    EV(STOP),       S(EXITED),     ACT(REPORT),     "never started" },
    { S(PENDING),    EV(KILL),       S(EXITED),     ACT(REPORT),     "never started" },
    { S(PENDING),    EV(STARTED),    S(RUNNING),    ACT(WATCH),      "taken up again" },
    { S(PENDING),    EV(FAILED),     S(STOPPING),   ACT(ABANDON),    "never started" },
    { S(PENDING),    EV(ENDED),      S(STOPPING),   ACT(DRAIN),      "ended while no agent ran" },
    { S(PENDING),    EV(SHIM_LOST),  S(STOPPING),   ACT(DRAIN),      "its shim died" },
    { S(PENDING),    EV(GONE),       S(STOPPING),   ACT(PROVE),      "ended while no agent ran" },
    { S(PENDING),    EV(VANISHED),   S(LOST),       ACT(REPORT),     "the machine was restarted" },
    { S(PREPARING),  EV(STARTED),    S(RUNNING),    ACT(WATCH),      "the program runs" },
    { S(PREPARING),  EV(FAILED),     S(STOPPING),   ACT(ABANDON),    "cannot be started" },
    { S(PREPARING),  EV(STOP),       S(STOPPING),   ACT(ABANDON),    "stopped before it ran" },
    { S(PREPARING),  EV(KILL),       S(STOPPING),   ACT(ABANDON),    "killed before it ran" },
    { S(PREPARING),  EV(SHIM_LOST),  S(STOPPING),   ACT(DRAIN),      "its shim died" },
    { S(PREPARING),  EV(ENDED),      S(STOPPING),   ACT(DRAIN),      "ended" },
    { S(RUNNING),    EV(STOP),       S(STOPPING),   ACT(TERM),       "asked to end" },
    { S(RUNNING),    EV(KILL),       S(STOPPING),   ACT(KILL),       "killed" },
    { S(RUNNING),    EV(HUNG),       S(STOPPING),   ACT(KILL),       "no progress: killed" },
    { S(RUNNING),    EV(ENDED),      S(STOPPING),   ACT(DRAIN),      "ended" },
    { S(RUNNING),    EV(SHIM_LOST),  S(STOPPING),   ACT(DRAIN),      "its shim died" },
    { S(RUNNING),    EV(STUCK),      S(UNKILLABLE), ACT(QUARANTINE), "processes survive KILL" },
    { S(STOPPING),   EV(STARTED),    S(STOPPING),   ACT(KILL),       "started too late" },
    { S(STOPPING),   EV(KILL),       S(STOPPING),   ACT(KILL),       "killed" },
    { S(STOPPING),   EV(HUNG),       S(STOPPING),   ACT(KILL),       "no progress: killed" },
    { S(STOPPING),   EV(GRACE_OVER), S(STOPPING),   ACT(KILL),       "grace is over: killed" },
    { S(STOPPING),   EV(ENDED),      S(STOPPING),   ACT(DRAIN),      "ended" },
    { S(STOPPING),   EV(FAILED),     S(STOPPING),   ACT(ABANDON),    "cannot be started" },
    { S(STOPPING),   EV(SHIM_LOST),  S(STOPPING),   ACT(DRAIN),      "its shim died" },
    { S(STOPPING),   EV(GONE),       S(STOPPING),   ACT(PROVE),      "no process is left" },
    { S(STOPPING),   EV(STUCK),      S(UNKILLABLE), ACT(QUARANTINE), "cannot be removed" },
    { S(STOPPING),   EV(CLEARED),    S(EXITED),     ACT(REPORT),     "proven gone" },
    { S(UNKILLABLE), EV(KILL),       S(UNKILLABLE), ACT(KILL),       "killed again" },
    { S(UNKILLABLE), EV(GONE),       S(STOPPING),   ACT(PROVE),      "gone at last" },
    { S(UNKILLABLE), EV(CLEARED),    S(EXITED),     ACT(REPORT),     "its devices are empty now" },
};
/* clang-format on */
#define X(name, text) text,
static const char *const event_names[] = {WORKER_EVENTS(X)};
#undef X

const struct worker_rule *worker_fsm_find(Pb__ActualWorker__State from, enum worker_event event)
{
    for (size_t i = 0; i < COUNT_OF(rules); i++)
        if (rules[i].from == from && rules[i].event == event)
            return &rules[i];
    return NULL;
}

const struct worker_rule *worker_fsm_rows(size_t *count)
{
    *count = COUNT_OF(rules);
    return rules;
}

const char *worker_fsm_event_name(enum worker_event event)
{
    return (unsigned)event < WORKER_EV_COUNT ? event_names[event] : "?";
}
