/* spare.c - see spare.h. */
#include "agent/spare.h"
#include "agent/files.h"
#include "agent/shim/shim_wire.h"
#include "agent/stock.h"
#include "base/log.h"
#include "base/mem.h"
#include <inttypes.h>

struct spares {
    struct files *files;
    struct stock *stock;
    char *dir;
    uint64_t made, taken; /* names count up: taken + 1 up to made are ready */
};

static void spares_made(void *arg, enum status st, const struct error *err,
                        struct files_batch *batch)
{
    struct spares *spares = arg;
    (void)batch;
    if (st != STATUS_OK) /* its name is used again: existing files are fine */
        log_warn("spare.make", log_err(err));
    spares->made += st == STATUS_OK;
    stock_made(spares->stock, st == STATUS_OK);
}

static void spares_add_file(struct files_batch *batch, const char *dir, const char *name,
                            uint32_t mode)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, name);
    files_append(batch, path, "", 0)->mode = mode;
}

/* Names and modes as worker_start.c and the shim make them; *.new and *.tmp are renamed by them. */
static void spares_make(void *arg)
{
    static const char *const own[] = {"launch.new", "start.new",      "reports",
                                      "page.new",   "ranks.json.new", "error.json"};
    struct spares *spares = arg;
    struct files_batch *batch = files_batch_create();
    SCOPED_TEXT char *dir = mem_printf("%s/%" PRIu64, spares->dir, spares->made + 1);
    SCOPED_TEXT char *tmp = mem_printf("%s/tmp", dir);
    (void)files_dir(batch, dir, 0700);
    (void)files_dir(batch, tmp, 0700);
    for (size_t i = 0; i < COUNT_OF(own); i++)
        spares_add_file(batch, dir, own[i], 0600);
    spares_add_file(batch, dir, SHIM_WIRE_PID_FILE ".tmp", 0644);
    spares_add_file(batch, dir, SHIM_WIRE_EXIT_FILE ".tmp", 0644);
    spares_add_file(batch, dir, SHIM_WIRE_REQUEST_FILE, 0600);
    spares_add_file(batch, dir, "out", 0640);
    spares_add_file(batch, dir, "err", 0640);
    files_run(spares->files, batch, spares_made, spares);
}

static void spares_cleared(void *arg, enum status st, const struct error *err,
                           struct files_batch *batch)
{
    struct spares *spares = arg;
    (void)batch;
    if (st != STATUS_OK)
        log_warn("spare.clear", log_err(err));
    else
        stock_begin(spares->stock);
}

struct spares *spares_create(struct loop *loop, struct files *files, const char *dir,
                             uint32_t count)
{
    struct spares *spares = NEW(struct spares);
    spares->files = files;
    spares->dir = mem_strdup(dir);
    spares->stock = stock_create(loop, count, spares_make, spares);
    return spares;
}

void spares_destroy(struct spares *spares)
{
    if (!spares)
        return;
    stock_destroy(spares->stock);
    mem_free(spares->dir);
    mem_free(spares);
}

void spares_start(struct spares *spares)
{
    struct files_batch *batch = files_batch_create();
    (void)files_step_add(batch, FILES_REMOVE, spares->dir);
    (void)files_dir(batch, spares->dir, 0700);
    files_run(spares->files, batch, spares_cleared, spares);
}

char *spares_take(struct spares *spares)
{
    if (!stock_take(spares->stock))
        return NULL;
    return mem_printf("%s/%" PRIu64, spares->dir, ++spares->taken);
}

size_t spares_ready(const struct spares *spares)
{
    return stock_ready(spares->stock);
}
