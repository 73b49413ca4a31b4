/* vault_pool.c - one vault job, made and done. Blocking calls of checkpoint/vault.h. */
#include "agent/vault_pool.h"
#include "agent/vault_fetch.h"
#include "agent/vault_persist.h"
#include "agent/vault_slot.h"
#include "agent/vault_watch.h"
#include "base/mem.h"
#include "checkpoint/digest.h"
#include "checkpoint/vault.h"
#include "checkpoint/vault_audit.h"
#include "checkpoint/vault_sharded.h"

struct vault_job *vault_job_create(enum vault_job_kind kind, const char *vault, const char *path,
                                   const char *role, uint32_t rank)
{
    struct vault_job *job = NEW(struct vault_job);
    job->kind = kind;
    job->vault = mem_strdup(vault);
    job->path = mem_strdup(path);
    job->role = mem_strdup(role);
    job->rank = rank;
    job->uid = job->gid = -1;
    return job;
}

void vault_job_destroy(struct vault_job *job)
{
    if (!job)
        return;
    mem_free(job->vault);
    mem_free(job->path);
    mem_free(job->role);
    mem_free(job->digest);
    mem_free(job->manifest);
    mem_free(job->source);
    mem_free(job->pattern);
    mem_free(job->marker);
    mem_free(job->below);
    mem_free(job->node);
    mem_free(job->found);
    vault_audit_destroy(job->audit);
    vault_fetch_destroy(job->fetch);
    vault_look_destroy(job->look);
    for (size_t i = 0; i < job->looked_count; i++)
        pb__vault_found__free_unpacked(job->looked[i], NULL);
    mem_free(job->looked);
    for (size_t i = 0; i < job->steps_count; i++)
        mem_free(job->step_dirs[i]);
    if (job->part)
        protobuf_c_message_free_unpacked(&job->part->base, NULL);
    mem_free(job);
}

static enum status run_digest(struct vault_job *job, struct error *err)
{
    enum status st =
        vault_part_digest(job->vault, job->path, job->role, job->rank, &job->stop, &job->part, err);
    return st == STATUS_OK ? vault_sharded_describe(job->vault, job->path, job->part, err) : st;
}

static enum status run_seal(struct vault_job *job, struct error *err)
{
    char digest[65];
    enum status st = vault_seal(job->vault, job->path, job->manifest, job->manifest_len, err);
    if (st != STATUS_OK)
        return st;
    digest_sha256(job->manifest, job->manifest_len, digest);
    mem_free(job->digest);
    job->digest = mem_strdup(digest);
    return STATUS_OK;
}

static enum status run_audit(struct vault_job *job, struct error *err)
{
    enum status st = STATUS_OK;
    if (!job->audit)
        st = vault_audit_begin(job->vault, job->path, job->digest, job->node, &job->audit, err);
    return st == STATUS_OK ? vault_audit_step(job->audit, job->bytes_max, &job->over, err) : st;
}

#define LOOKED_MAX       512
#define LOOKED_BYTES_MAX ((size_t)1 << 20)

/* As many directories as one message holds, or one piece of one that is read. */
static enum status run_look(struct vault_job *job, struct error *err)
{
    enum status st = STATUS_OK;
    size_t bytes = 0;
    if (!job->look) {
        job->look_options.vault = job->vault;
        job->look_options.path = job->path;
        job->look_options.node = job->node;
        st = vault_look_begin(&job->look_options, &job->look, err);
    }
    job->looked = mem_array(LOOKED_MAX, sizeof(*job->looked));
    while (st == STATUS_OK && job->looked_count < LOOKED_MAX && bytes < LOOKED_BYTES_MAX) {
        Pb__VaultFound *found = NULL;
        st = vault_look_step(job->look, job->bytes_max, &found, &job->over, err);
        if (!found)
            break;
        bytes += pb__vault_found__get_packed_size(found);
        job->looked[job->looked_count++] = found;
        if (found->read)
            break;
    }
    return st;
}

enum status vault_job_run(struct vault_job *job, struct error *err)
{
    switch (job->kind) {
    case VAULT_JOB_PART_CREATE:
        return vault_part_create(job->vault, job->path, job->role, job->rank, job->uid, job->gid,
                                 job->dir, sizeof(job->dir), err);
    case VAULT_JOB_PART_DIGEST:
        return run_digest(job, err);
    case VAULT_JOB_SEAL:
        return run_seal(job, err);
    case VAULT_JOB_VERIFY:
        return vault_verify_resume(job->vault, job->path, job->digest, err);
    case VAULT_JOB_DELETE:
        return vault_delete(job->vault, job->path, err);
    case VAULT_JOB_SCAN:
        return vault_watch_scan(job, err);
    case VAULT_JOB_IMPORT:
        return vault_watch_import(job, err);
    case VAULT_JOB_SLOT_MAKE:
        return vault_slot_make(job, err);
    case VAULT_JOB_SLOT_SCAN:
        return vault_slot_scan(job, err);
    case VAULT_JOB_SLOT_MARK:
        return vault_slot_mark(job, err);
    case VAULT_JOB_SLOT_DROP:
        return vault_slot_drop(job, err);
    case VAULT_JOB_PERSIST:
        return vault_persist_run(job, err);
    case VAULT_JOB_FETCH:
        return vault_fetch_run(job, err);
    case VAULT_JOB_AUDIT:
        return run_audit(job, err);
    case VAULT_JOB_LOOK:
        return run_look(job, err);
    case VAULT_JOB_SET_ASIDE:
        return vault_look_set_aside(job->vault, job->path, err);
    }
    return error_set(err, STATUS_INTERNAL, "unknown vault job %d", (int)job->kind);
}
