/* gang_load.c - gangs that an earlier agent had restarted. See gang.h. */
#include "agent/ended.h"
#include "agent/gang_inner.h"
#include "base/log.h"
#include <string.h>

#define FILE_BYTES_MAX ((size_t)64 << 20)

static bool file_is_good(const Pb__GangFile *file, const char *name)
{
    if (file->n_workers == 0 || file->n_restarts == 0 || file->incarnation < 2)
        return false;
    for (size_t i = 0; i < file->n_workers; i++) {
        const Pb__DesiredWorker *worker = file->workers[i];
        char its[GANG_NAME_CAP], tag[SPOOL_TAG_MAX];
        if (!worker->launch || !worker_tag(worker->key, tag) ||
            worker->key->incarnation != file->incarnation)
            return false;
        gang_name(worker->key, its);
        if (strcmp(its, name) != 0)
            return false;
    }
    return true;
}

/* One that was never made has no directory, here or among the ended. When one of the incarnation
 * has ended and left, its time is over: nobody is made any more. */
static bool has_begun_to_leave(const struct gangs *gangs, const Pb__GangFile *file)
{
    char tag[SPOOL_TAG_MAX];
    for (size_t i = 0; i < file->n_workers; i++)
        if (ended_find(gangs->agent->ended, file->workers[i]->key, tag))
            return true;
    return false;
}

/* Of any incarnation. */
static size_t count_here(const struct gangs *gangs, const char *name)
{
    char its[GANG_NAME_CAP];
    size_t at = 0, count = 0;
    const struct worker *worker;
    while ((worker = map_next(gangs->agent->workers, &at))) {
        gang_name(worker->desired->key, its);
        count += !strcmp(its, name);
    }
    return count;
}

static void load_one(struct gangs *gangs, const char *name, const struct files_step *step)
{
    Pb__GangFile *file = step->len ? pb__gang_file__unpack(NULL, step->len, step->bytes) : NULL;
    bool good = file && file_is_good(file, name);
    bool over = good && has_begun_to_leave(gangs, file);
    struct gang *gang =
        good && !(over && !count_here(gangs, name)) ? gang_obtain(gangs, name) : NULL;
    if (!gang) {
        log_warn("gang.drop", log_str("gang", name), log_int("damaged", !good));
        gang_remove_file(gangs, name);
        if (file)
            pb__gang_file__free_unpacked(file, NULL);
        return;
    }
    gang->file = file;
    log_info("gang.adopt", log_str("gang", name), log_int("incarnation", file->incarnation),
             log_int("leaves", over));
    gang_supersede(gangs, gang);
    if (!over)
        gang_make_workers(gangs, gang);
}

struct load {
    struct gangs *gangs;
    char **names;
    size_t count;
    void (*done)(struct agent *agent, const struct error *err);
};

static void load_end(struct load *load, enum status st, const struct error *err)
{
    struct agent *agent = load->gangs->agent;
    void (*done)(struct agent * agent, const struct error *err) = load->done;
    files_names_destroy(load->names, load->count);
    pending_destroy(load);
    done(agent, st == STATUS_OK ? NULL : err);
}

static void gangs_read_done(void *arg, enum status st, const struct error *err,
                            struct files_batch *batch)
{
    struct load *load = arg;
    for (size_t i = 0; i < batch->ran; i++)
        load_one(load->gangs, load->names[i], &batch->steps[i]);
    load_end(load, st, err);
}

static void gangs_list_done(void *arg, enum status st, const struct error *err,
                            struct files_batch *batch)
{
    struct load *load = arg;
    struct gangs *gangs = load->gangs;
    struct files_step *list = &batch->steps[1];
    if (st != STATUS_OK || list->names_count == 0) {
        load_end(load, st, err);
        return;
    }
    load->names = list->names;
    load->count = list->names_count;
    list->names = NULL;
    list->names_count = 0;
    struct files_batch *read = files_batch_create();
    for (size_t i = 0; i < load->count; i++) {
        SCOPED_TEXT char *path = mem_printf("%s/%s", gangs->dir, load->names[i]);
        files_read(read, path, 0, FILE_BYTES_MAX)->missing_ok = true;
    }
    files_run(gangs->agent->files, read, gangs_read_done, load);
}

void gangs_load(struct gangs *gangs, void (*done)(struct agent *agent, const struct error *err))
{
    struct load *load = PENDING(&gangs->agent->pending, struct load);
    struct files_batch *batch = files_batch_create();
    load->gangs = gangs;
    load->done = done;
    (void)files_dir(batch, gangs->dir, 0700);
    (void)files_step_add(batch, FILES_LIST, gangs->dir);
    files_run(gangs->agent->files, batch, gangs_list_done, load);
}
