/* vault_pool_uv.c - vault jobs in libuv's pool: at most threads_max at once, the rest waits in
 * order, so that a large checkpoint leaves threads to launches and metrics. No job has all threads
 * that read.
 *
 * Loop thread but for work_run, which runs in the pool and touches its own request only. */
#include "agent/vault_pool.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/mem.h"
#include <stdbool.h>
#include <string.h>
#include <uv.h>

struct vault_pool_uv {
    struct vault_pool base;
    uv_loop_t *uv;
    uint32_t threads_max, running, reading;
    struct list waiting, read; /* not begun; being read */
    bool dropped;              /* destroyed: what still runs answers nobody */
};
struct work {
    uv_work_t req;
    struct list node;
    struct vault_pool_uv *pool;
    struct vault_job *job;
    vault_pool_done done;
    void *arg;
    enum status st;
    struct error err;
};

static void work_run(uv_work_t *req)
{
    struct work *work = CONTAINER_OF(req, struct work, req);
    work->st = vault_job_run(work->job, &work->err);
}

static void work_after(uv_work_t *req, int status);

/* These take as long as there are bytes. */
static bool is_reading(const struct work *work)
{
    return work->job->kind == VAULT_JOB_PART_DIGEST || work->job->kind == VAULT_JOB_IMPORT ||
           work->job->kind == VAULT_JOB_VERIFY || work->job->kind == VAULT_JOB_PERSIST ||
           work->job->kind == VAULT_JOB_AUDIT || work->job->kind == VAULT_JOB_FETCH ||
           work->job->kind == VAULT_JOB_LOOK;
}

/* Paths are <job>/<step>. */
static bool is_same_job(const struct work *a, const struct work *b)
{
    const char *left = a->job->path ? a->job->path : "", *right = b->job->path ? b->job->path : "";
    const size_t len = strcspn(left, "/");
    return len == strcspn(right, "/") && strncmp(left, right, len) == 0;
}

/* One thread is left to what is quick, such as a directory to save in; and one more to the reading
 * of others, while there is more than one. */
static bool may_begin(struct vault_pool_uv *self, const struct work *work)
{
    const uint32_t most = self->threads_max < 2 ? 1 : self->threads_max - 1;
    uint32_t own = 0;
    if (!is_reading(work))
        return true;
    LIST_EACH(&self->read, node)
    own += is_same_job(work, LIST_ITEM(node, struct work, node));
    return self->reading < most && (own == 0 || own + 1 < most);
}

/* In order among those that may. */
static struct work *work_take(struct vault_pool_uv *self)
{
    LIST_EACH(&self->waiting, node)
    {
        struct work *work = LIST_ITEM(node, struct work, node);
        if (!may_begin(self, work))
            continue;
        list_remove(node);
        return work;
    }
    return NULL;
}

static void work_next(struct vault_pool_uv *self)
{
    struct work *work;
    while (self->running < self->threads_max && (work = work_take(self))) {
        self->running++;
        if (is_reading(work)) {
            self->reading++;
            list_add_last(&self->read, &work->node);
        }
        (void)uv_queue_work(self->uv, &work->req, work_run, work_after);
    }
}

static void work_after(uv_work_t *req, int status)
{
    struct work *work = CONTAINER_OF(req, struct work, req);
    struct vault_pool_uv *self = work->pool;
    (void)status;
    self->running--;
    if (is_reading(work)) {
        self->reading--;
        list_remove(&work->node);
    }
    if (!self->dropped) {
        work_next(self);
        work->done(work->arg, work->st, work->st == STATUS_OK ? NULL : &work->err, work->job);
    }
    vault_job_destroy(work->job);
    mem_free(work);
    if (self->dropped && self->running == 0)
        mem_free(self);
}

static void vault_pool_uv_run(struct vault_pool *pool, struct vault_job *job, vault_pool_done done,
                              void *arg)
{
    struct vault_pool_uv *self = CONTAINER_OF(pool, struct vault_pool_uv, base);
    struct work *work = NEW(struct work);
    work->pool = self;
    work->job = job;
    work->done = done;
    work->arg = arg;
    list_add_last(&self->waiting, &work->node);
    work_next(self);
}

static void vault_pool_uv_destroy(struct vault_pool *pool)
{
    struct vault_pool_uv *self = CONTAINER_OF(pool, struct vault_pool_uv, base);
    LIST_EACH(&self->waiting, node)
    {
        struct work *work = LIST_ITEM(node, struct work, node);
        list_remove(node);
        vault_job_destroy(work->job);
        mem_free(work);
    }
    self->dropped = true;
    if (self->running == 0)
        mem_free(self);
}

static const struct vault_pool_ops vault_pool_uv_ops = {vault_pool_uv_run, vault_pool_uv_destroy};

struct vault_pool *vault_pool_uv_create(struct loop *loop, uint32_t threads_max)
{
    struct vault_pool_uv *self = NEW(struct vault_pool_uv);
    self->base.ops = &vault_pool_uv_ops;
    self->uv = loop_uv_handle(loop);
    self->threads_max = threads_max ? threads_max : 2;
    list_init(&self->waiting);
    list_init(&self->read);
    return &self->base;
}
