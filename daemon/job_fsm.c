/* job_fsm.c - the life of a job as rows. See job_fsm.h. */
#include "daemon/job_fsm.h"
#include "proto/text/text_format.h"

#define S(x) PB__JOB__STATE__##x
static const struct job_rule job_rules[] = {
    /* from        event                    to            shown to the operator */
    {S(QUEUED), JOB_EV_PLACED, S(STARTING), "nodes reserved, workers are being launched"},
    {S(QUEUED), JOB_EV_CANCEL, S(CANCELLED), "cancelled while it waited"},
    {S(QUEUED), JOB_EV_HOLD, S(HELD), "held back by request"},
    {S(HELD), JOB_EV_RELEASE, S(QUEUED), "released, waits for nodes"},
    {S(HELD), JOB_EV_CANCEL, S(CANCELLED), "cancelled while it was held"},
    {S(STARTING), JOB_EV_WORKERS_UP, S(RUNNING), "all workers run"},
    {S(STARTING), JOB_EV_BROKEN, S(STOPPING), "the launch failed, the rest is being stopped"},
    {S(STARTING), JOB_EV_STOP_ASKED, S(STOPPING), "workers are being stopped by request"},
    {S(RUNNING), JOB_EV_BROKEN, S(STOPPING), "the attempt broke, the rest is being stopped"},
    {S(RUNNING), JOB_EV_STOP_ASKED, S(STOPPING), "workers are being stopped by request"},
    {S(RUNNING), JOB_EV_SAVE_ASKED, S(SAVING), "workers save at a named step and stop"},
    {S(RUNNING), JOB_EV_ENDED_WELL, S(SUCCEEDED), "every worker ended with 0"},
    {S(SAVING), JOB_EV_BROKEN, S(STOPPING), "the attempt broke while it saved"},
    {S(SAVING), JOB_EV_STOP_ASKED, S(STOPPING), "workers are being stopped by request"},
    {S(SAVING), JOB_EV_ENDED_WELL, S(SUCCEEDED), "every worker ended with 0"},
    {S(SAVING), JOB_EV_GONE_HELD, S(HELD), "saved, stopped and held"},
    {S(STOPPING), JOB_EV_STOP_ASKED, S(STOPPING), "still stopping, what follows has changed"},
    {S(STOPPING), JOB_EV_GONE_REQUEUE, S(QUEUED), "waits for its next attempt"},
    {S(STOPPING), JOB_EV_GONE_FAILED, S(FAILED), "no further attempt"},
    {S(STOPPING), JOB_EV_GONE_CANCELLED, S(CANCELLED), "all workers are gone"},
    {S(STOPPING), JOB_EV_GONE_HELD, S(HELD), "all workers are gone, held"},
    {S(STOPPING), JOB_EV_GONE_SUCCEEDED, S(SUCCEEDED), "all workers are gone"},
};

const struct job_rule *job_fsm_find(Pb__Job__State from, enum job_event event)
{
    for (size_t i = 0; i < COUNT_OF(job_rules); i++)
        if (job_rules[i].from == from && job_rules[i].event == event)
            return &job_rules[i];
    return NULL;
}

const char *job_fsm_event_name(enum job_event event)
{
    static const char *const names[] = {
#define X(name, text) text,
        JOB_EVENTS(X)
#undef X
    };
    return (size_t)event < COUNT_OF(names) ? names[event] : "unknown";
}

bool job_fsm_ended(Pb__Job__State state)
{
    return state == S(SUCCEEDED) || state == S(FAILED) || state == S(CANCELLED);
}

bool job_fsm_active(Pb__Job__State state)
{
    return state == S(STARTING) || state == S(RUNNING) || state == S(SAVING) ||
           state == S(STOPPING);
}

void job_fsm_print(struct text *out)
{
    text_add(out, "| from | event | to | what the operator is told |\n|---|---|---|---|\n");
    for (size_t i = 0; i < COUNT_OF(job_rules); i++) {
        const struct job_rule *rule = &job_rules[i];
        text_addf(out, "| %s | %s | %s | %s |\n",
                  enum_name(&pb__job__state__descriptor, (int)rule->from),
                  job_fsm_event_name(rule->event),
                  enum_name(&pb__job__state__descriptor, (int)rule->to), rule->shown);
    }
    text_add(out, "\n```mermaid\nstateDiagram-v2\n    [*] --> QUEUED\n");
    for (size_t i = 0; i < COUNT_OF(job_rules); i++)
        text_addf(out, "    %s --> %s: %s\n",
                  enum_name(&pb__job__state__descriptor, (int)job_rules[i].from),
                  enum_name(&pb__job__state__descriptor, (int)job_rules[i].to),
                  job_fsm_event_name(job_rules[i].event));
    text_add(out, "```\n");
}
