/* save_task.c - what the daemon wants of vaults: seals and deletions; and verification before a
 * resume. See save.h. */
#include "agent/actual.h"
#include "agent/save_inner.h"
#include "base/log.h"
#include <string.h>

#define RETRY_US  5000000
#define MEMO_US   60000000
#define MEMOS_MAX 64

struct verify {
    struct list node;
    char *vault, *path, *digest;
    enum { VERIFY_RUNNING, VERIFY_GOOD } state;
    int64_t good_us;
    struct verify_waiter {
        void (*done)(void *arg, enum status st, const struct error *err);
        void *arg;
    } * waiters;
    size_t waiters_count;
    struct saves *saves;
};
struct task_op {
    struct saves *saves;
    int64_t checkpoint;
    enum vault_job_kind kind;
};

void save_task_destroy(struct save_task *task)
{
    mem_free(task->digest);
    mem_free(task->error);
    mem_free(task);
}

static struct save_task *find_task(struct saves *saves, enum vault_job_kind kind,
                                   int64_t checkpoint)
{
    LIST_EACH(&saves->tasks, node)
    {
        struct save_task *task = LIST_ITEM(node, struct save_task, node);
        if (task->kind == kind && task->checkpoint == checkpoint)
            return task;
    }
    return NULL;
}

static void task_finish(struct saves *saves, struct save_task *task, const char *digest,
                        const char *error)
{
    task->state = SAVE_TASK_DONE;
    task->done_us = loop_now_us(saves->agent->loop);
    task->digest = mem_strdup(digest);
    task->error = mem_strdup(error);
    if (error)
        log_warn(task->kind == VAULT_JOB_SEAL ? "save.seal" : "save.delete",
                 log_int("checkpoint", task->checkpoint), log_str("err", error));
    actual_mark_outbox(saves->agent->actual);
}

static void task_done(void *arg, enum status st, const struct error *err, struct vault_job *job)
{
    struct task_op *op = arg;
    struct save_task *task = find_task(op->saves, op->kind, op->checkpoint);
    if (task)
        task_finish(op->saves, task, st == STATUS_OK ? job->digest : NULL,
                    st == STATUS_OK ? NULL : err->text);
    pending_destroy(op);
}

/* The same task again: nothing to do, unless it failed a while ago. */
static struct save_task *task_begin(struct saves *saves, enum vault_job_kind kind,
                                    int64_t checkpoint)
{
    struct save_task *task = find_task(saves, kind, checkpoint);
    if (task) {
        task->wanted = true;
        bool again = task->state == SAVE_TASK_DONE && task->error &&
                     loop_now_us(saves->agent->loop) - task->done_us > RETRY_US;
        if (!again)
            return NULL;
        mem_free(task->error);
        mem_free(task->digest);
        task->error = task->digest = NULL;
        task->sent_seq = 0;
        task->state = SAVE_TASK_RUNNING;
        return task;
    }
    task = NEW(struct save_task);
    task->kind = kind;
    task->checkpoint = checkpoint;
    task->wanted = true;
    list_add_last(&saves->tasks, &task->node);
    return task;
}

static void task_run(struct saves *saves, struct save_task *task, const char *vault_name,
                     const char *path, const ProtobufCBinaryData *manifest)
{
    char vault[1024];
    if (!saves_vault(saves, vault_name, vault, sizeof(vault)) || !path) {
        task_finish(saves, task, NULL, "this node has no vault of that name");
        return;
    }
    struct task_op *op = PENDING(&saves->agent->pending, struct task_op);
    *op = (struct task_op){saves, task->checkpoint, task->kind};
    struct vault_job *job = vault_job_create(task->kind, vault, path, NULL, 0);
    if (manifest && manifest->len) {
        job->manifest = mem_dup(manifest->data, manifest->len);
        job->manifest_len = manifest->len;
    }
    vault_pool_run(saves->agent->options.vaults, job, task_done, op);
}

void saves_desired(struct saves *saves, const Pb__Desired *desired)
{
    LIST_EACH(&saves->tasks, node)
    LIST_ITEM(node, struct save_task, node)->wanted = false;
    for (size_t i = 0; i < desired->n_seals; i++) {
        const Pb__DesiredSeal *seal = desired->seals[i];
        struct save_task *task = task_begin(saves, VAULT_JOB_SEAL, seal->checkpoint);
        if (task)
            task_run(saves, task, seal->vault, seal->path, &seal->manifest);
    }
    for (size_t i = 0; i < desired->n_deletes; i++) {
        const Pb__DesiredDelete *gone = desired->deletes[i];
        struct save_task *task = task_begin(saves, VAULT_JOB_DELETE, gone->checkpoint);
        if (task)
            task_run(saves, task, gone->vault, gone->path, NULL);
    }
    save_audit_desired(saves, desired);
    save_fetch_desired(saves, desired);
    LIST_EACH(&saves->tasks, at)
    {
        struct save_task *task = LIST_ITEM(at, struct save_task, node);
        if (task->wanted || task->state == SAVE_TASK_RUNNING)
            continue;
        list_remove(at);
        save_task_destroy(task);
    }
}

/* --- verification, read once for all workers of a node */

static void verify_destroy(struct verify *verify)
{
    mem_free(verify->vault);
    mem_free(verify->path);
    mem_free(verify->digest);
    mem_free(verify->waiters);
    mem_free(verify);
}

void save_verify_destroy_all(struct saves *saves)
{
    LIST_EACH(&saves->verifies, node)
    verify_destroy(LIST_ITEM(node, struct verify, node));
}

static void verify_done(void *arg, enum status st, const struct error *err, struct vault_job *job)
{
    struct verify *verify = arg;
    struct verify_waiter *waiters = verify->waiters;
    size_t count = verify->waiters_count;
    (void)job;
    verify->waiters = NULL;
    verify->waiters_count = 0;
    verify->state = VERIFY_GOOD;
    verify->good_us = loop_now_us(verify->saves->agent->loop);
    if (st != STATUS_OK) {
        list_remove(&verify->node);
        verify_destroy(verify);
    }
    for (size_t i = 0; i < count; i++)
        waiters[i].done(waiters[i].arg, st, err);
    mem_free(waiters);
}

static struct verify *find_verify(struct saves *saves, const char *vault, const char *path,
                                  const char *digest)
{
    int64_t now = loop_now_us(saves->agent->loop);
    size_t count = 0;
    struct verify *found = NULL;
    LIST_EACH(&saves->verifies, node)
    {
        struct verify *verify = LIST_ITEM(node, struct verify, node);
        if (verify->state == VERIFY_GOOD &&
            (now - verify->good_us > MEMO_US || ++count > MEMOS_MAX)) {
            list_remove(node);
            verify_destroy(verify);
        } else if (strcmp(verify->vault, vault) == 0 && strcmp(verify->path, path) == 0 &&
                   strcmp(verify->digest, digest) == 0) {
            found = verify;
        }
    }
    return found;
}

void saves_verify(struct saves *saves, const char *vault, const char *path, const char *digest,
                  void (*done)(void *arg, enum status st, const struct error *err), void *arg)
{
    struct verify *verify = find_verify(saves, vault, path, digest ? digest : "");
    if (verify && verify->state == VERIFY_GOOD) {
        done(arg, STATUS_OK, NULL); /* read a moment ago for another worker */
        return;
    }
    if (!verify) {
        verify = NEW(struct verify);
        verify->saves = saves;
        verify->vault = mem_strdup(vault);
        verify->path = mem_strdup(path);
        verify->digest = mem_strdup(digest ? digest : "");
        list_add_last(&saves->verifies, &verify->node);
        struct vault_job *job = vault_job_create(VAULT_JOB_VERIFY, vault, path, NULL, 0);
        job->digest = digest && *digest ? mem_strdup(digest) : NULL;
        vault_pool_run(saves->agent->options.vaults, job, verify_done, verify);
    }
    verify->waiters =
        mem_resize(verify->waiters, verify->waiters_count + 1, sizeof(*verify->waiters));
    verify->waiters[verify->waiters_count++] = (struct verify_waiter){done, arg};
}
