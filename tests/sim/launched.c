/* launched.c - incarnations: never two at once, never beyond the budget, never from what is not
 * committed. See launched.h. */
#include "tests/sim/launched.h"
#include "base/mem.h"
#include "proto/text/text_format.h"
#include "worker/env.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t number(const struct host_proc *proc, const char *name)
{
    const char *text = host_proc_env(proc, name);

    return text && *text ? strtoll(text, NULL, 10) : 0;
}

static uint32_t reached(const Pb__Attempt *row)
{
    return row->incarnation ? row->incarnation : 1;
}

/* On one machine a rank lives once, and no worker of the incarnation before does. */
static void check_alone(const struct host_proc *proc)
{
    LIST_EACH(&proc->host->procs, item)
    {
        const struct host_proc *other = LIST_ITEM(item, struct host_proc, node);
        if (other->gone || other == proc || number(other, ENV_JOB) != number(proc, ENV_JOB) ||
            number(other, ENV_ATTEMPT) != number(proc, ENV_ATTEMPT))
            continue;
        if (number(other, ENV_INCARNATION) != number(proc, ENV_INCARNATION) ||
            number(other, ENV_RANK) == number(proc, ENV_RANK))
            sim_fail(proc->host->sim, "%s: %s starts while %s is alive", proc->host->name,
                     proc->tag, other->tag);
    }
}

static void check_resume(const struct host_proc *proc)
{
    struct cluster *cluster = proc->host->cluster;
    int64_t id = number(proc, ENV_RESUME_CHECKPOINT);
    char key[24];

    if (!id)
        return;
    snprintf(key, sizeof(key), "%" PRId64, id);
    ProtobufCMessage *message = sim_db_row(cluster->db, CHANGE_CHECKPOINT, key);
    const Pb__Checkpoint *row = (const Pb__Checkpoint *)message;
    if (!row || !row->has_committed_us || row->job != number(proc, ENV_JOB))
        sim_fail(proc->host->sim, "%s begins from checkpoint %" PRId64 ", which is not committed",
                 proc->tag, id);
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
}

/* What the agent may do by itself is what the budget had left when the attempt was made. While the
 * attempt is the job's current one, what is not told yet has room in the budget, too. */
static void check_budget(const struct host_proc *proc)
{
    struct cluster *cluster = proc->host->cluster;
    int64_t job_id = number(proc, ENV_JOB), attempt_id = number(proc, ENV_ATTEMPT);
    uint32_t incarnation = (uint32_t)number(proc, ENV_INCARNATION);
    char key[48];

    if (incarnation < 2)
        return;
    cluster->restarts++;
    snprintf(key, sizeof(key), "%" PRId64 ".%" PRId64, job_id, attempt_id);
    ProtobufCMessage *attempt_row = sim_db_row(cluster->db, CHANGE_ATTEMPT, key);
    snprintf(key, sizeof(key), "%" PRId64, job_id);
    ProtobufCMessage *job_row = sim_db_row(cluster->db, CHANGE_JOB, key);
    const Pb__Attempt *attempt = (const Pb__Attempt *)attempt_row;
    const Pb__Job *job = (const Pb__Job *)job_row;
    if (!attempt || !job || incarnation > attempt->incarnation_max)
        sim_fail(proc->host->sim, "%s starts without an allowance", proc->tag);
    else if (!attempt->has_ended_us && job->state == PB__JOB__STATE__RUNNING &&
             job->restarts_used + incarnation > job->spec->restart->budget + reached(attempt))
        sim_fail(proc->host->sim, "%s starts: more than the budget allows", proc->tag);
    if (attempt_row)
        protobuf_c_message_free_unpacked(attempt_row, NULL);
    if (job_row)
        protobuf_c_message_free_unpacked(job_row, NULL);
}

void launched_check(const struct host_proc *proc)
{
    char key[48];

    check_alone(proc);
    check_resume(proc);
    check_budget(proc);
    snprintf(key, sizeof(key), "%" PRId64 ".%" PRId64 ".%" PRId64, number(proc, ENV_JOB),
             number(proc, ENV_ATTEMPT), number(proc, ENV_INCARNATION));
    map_put_text(proc->host->cluster->incarnations, key, proc->host->cluster);
}

/* --- the end */
struct counted {
    struct cluster *cluster;
    int64_t job;
    uint32_t restarts;
};

static void check_attempt(void *arg, const ProtobufCMessage *message)
{
    struct counted *counted = arg;
    const Pb__Attempt *row = (const Pb__Attempt *)message;
    char key[48];

    if (row->job != counted->job)
        return;
    counted->restarts += reached(row) - 1;
    if (row->n_restarts != reached(row) - 1)
        sim_fail(counted->cluster->sim, "attempt %" PRId64 ".%u: %zu restarts told of %u", row->job,
                 row->number, row->n_restarts, reached(row) - 1);
    for (size_t i = 0; i < row->n_restarts; i++)
        if (row->restarts[i]->incarnation != i + 1)
            sim_fail(counted->cluster->sim, "attempt %" PRId64 ".%u: a restart is told twice",
                     row->job, row->number);
    snprintf(key, sizeof(key), "%" PRId64 ".%u.%u", row->job, row->number, reached(row));
    if (reached(row) > 1 && !map_get_text(counted->cluster->incarnations, key))
        sim_trace(counted->cluster->sim, "incarnation %s ended before a worker of it ran", key);
}

void launched_check_end(struct cluster *cluster)
{
    for (size_t i = 0; i < cluster->jobs_count; i++) {
        const Pb__Job *row = core_job(cluster->core, cluster->jobs[i].id);
        struct counted counted = {.cluster = cluster, .job = row->id};
        sim_db_each(cluster->db, CHANGE_ATTEMPT, check_attempt, &counted);
        if (row->restarts_used > row->spec->restart->budget)
            sim_fail(cluster->sim, "job %" PRId64 " has used %u restarts of %u", row->id,
                     row->restarts_used, row->spec->restart->budget);
        if (counted.restarts > row->restarts_used)
            sim_fail(cluster->sim, "job %" PRId64 ": %u restarts in place, %u charged", row->id,
                     counted.restarts, row->restarts_used);
    }
}
