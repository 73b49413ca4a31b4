/* files_uv.c - batches of file steps in libuv's pool: at most threads_max at once, the rest waits
 * in order.
 *
 * Loop thread but for work_run, which runs in the pool and touches its own request only. */
#include "agent/files.h"
#include "agent/page_guard.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/mem.h"
#include "worker/page.h"
#include <sys/mman.h>
#include <uv.h>

struct files_uv {
    struct files base;
    uv_loop_t *uv;
    uint32_t threads_max, running;
    struct list waiting;
    bool dropped; /* destroyed: what still runs answers nobody */
};
struct work {
    uv_work_t req;
    struct list node;
    struct files_uv *files;
    struct files_batch *batch;
    files_done done;
    void *arg;
    enum status st;
    struct error err;
};

static void work_run(uv_work_t *req)
{
    struct work *work = CONTAINER_OF(req, struct work, req);
    work->st = files_disk_run(work->batch, &work->err);
}

static void files_uv_free_if_idle(struct files_uv *self)
{
    if (self->dropped && self->running == 0)
        mem_free(self);
}

static void work_after(uv_work_t *req, int status);

static void work_next(struct files_uv *self)
{
    while (self->running < self->threads_max && !list_is_empty(&self->waiting)) {
        struct work *work = LIST_ITEM(list_take_first(&self->waiting), struct work, node);
        self->running++;
        (void)uv_queue_work(self->uv, &work->req, work_run, work_after);
    }
}

static void work_after(uv_work_t *req, int status)
{
    struct work *work = CONTAINER_OF(req, struct work, req);
    struct files_uv *self = work->files;
    (void)status;
    self->running--;
    if (!self->dropped) {
        work_next(self);
        if (work->done)
            work->done(work->arg, work->st, work->st == STATUS_OK ? NULL : &work->err, work->batch);
    }
    files_batch_destroy(work->batch);
    mem_free(work);
    files_uv_free_if_idle(self);
}

static void files_uv_run(struct files *files, struct files_batch *batch, files_done done, void *arg)
{
    struct files_uv *self = CONTAINER_OF(files, struct files_uv, base);
    struct work *work = NEW(struct work);
    work->files = self;
    work->batch = batch;
    work->done = done;
    work->arg = arg;
    list_add_last(&self->waiting, &work->node);
    work_next(self);
}

static void files_uv_unmap(struct files *files, struct page *page)
{
    (void)files;
    if (!page)
        return;
    page_guard_remove(page);
    (void)munmap(page, PAGE_BYTES);
}

static void files_uv_destroy(struct files *files)
{
    struct files_uv *self = CONTAINER_OF(files, struct files_uv, base);
    LIST_EACH(&self->waiting, node)
    {
        struct work *work = LIST_ITEM(node, struct work, node);
        list_remove(node);
        files_batch_destroy(work->batch);
        mem_free(work);
    }
    self->dropped = true;
    files_uv_free_if_idle(self);
}

static const struct files_ops files_uv_ops = {files_uv_run, files_uv_unmap, files_uv_destroy};

struct files *files_uv_create(struct loop *loop, uint32_t threads_max)
{
    struct files_uv *self = NEW(struct files_uv);
    self->base.ops = &files_uv_ops;
    self->uv = loop_uv_handle(loop);
    self->threads_max = threads_max ? threads_max : 4;
    list_init(&self->waiting);
    return &self->base;
}
