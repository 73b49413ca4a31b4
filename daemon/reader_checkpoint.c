/* reader_checkpoint.c - one checkpoint, and what retention says of a job's. From memory: of jobs
 * that it no longer knows, ListCheckpoints tells from the store. */
#include "daemon/reader_question.h"

#define READER_RETENTION_MAX 5000

void reader_checkpoint_show(struct reader_question *q)
{
    const Pb__ShowCheckpointRequest *request =
        (const Pb__ShowCheckpointRequest *)(void *)q->request;
    Pb__CheckpointReply reply = PB__CHECKPOINT_REPLY__INIT;

    reply.checkpoint =
        (Pb__Checkpoint *)(uintptr_t)core_checkpoint(reader_core(q->reader), request->checkpoint);
    if (!reply.checkpoint) {
        reader_question_fail(q, STATUS_NOT_FOUND,
                             "no checkpoint %lld of a job that is still known; those of older "
                             "jobs are in the job's list",
                             (long long)request->checkpoint);
        return;
    }
    reader_question_end(q, STATUS_OK, NULL, &reply.base);
}

void reader_checkpoint_retention(struct reader_question *q)
{
    const Pb__PlanRetentionRequest *request = (const Pb__PlanRetentionRequest *)(void *)q->request;
    const struct core *core = reader_core(q->reader);
    Pb__PlanRetentionReply reply = PB__PLAN_RETENTION_REPLY__INIT;
    const size_t max = READER_RETENTION_MAX;

    if (!core_job(core, request->job)) {
        reader_question_fail(q, STATUS_NOT_FOUND, "no job %lld, or it ended long ago",
                             (long long)request->job);
        return;
    }
    const Pb__Checkpoint **rows = arena_alloc(q->arena, max * sizeof(*rows));
    const char **why = arena_alloc(q->arena, max * sizeof(*why));
    bool *keep = arena_alloc(q->arena, max * sizeof(*keep));
    size_t count = core_retention(core, request->job, rows, keep, why, max);
    count = count < max ? count : max;
    reply.verdicts = arena_alloc(q->arena, (count + 1) * sizeof(*reply.verdicts));
    for (size_t i = count; i-- > 0;) {
        Pb__RetentionVerdict *verdict = arena_alloc(q->arena, sizeof(*verdict));
        pb__retention_verdict__init(verdict);
        verdict->checkpoint = (Pb__Checkpoint *)(uintptr_t)rows[i];
        verdict->has_keep = true;
        verdict->keep = keep[i];
        verdict->why = (char *)(uintptr_t)why[i];
        reply.verdicts[reply.n_verdicts++] = verdict;
    }
    reader_question_end(q, STATUS_OK, NULL, &reply.base);
}
