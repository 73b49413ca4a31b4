/* serve_fsck_view.c - the rows of a run: as memory and database have them before the listings and
 * after. See serve_fsck.h. */
#include "base/mem.h"
#include "daemon/serve_fsck.h"
#include "daemon/view.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_ROWS      1000u
#define ROWS_MAX       500000u
#define ROWS_BYTES_MAX ((size_t)512 << 20)
#define IDS_A_QUESTION 1000u

static const char *project_of(const Pb__Job *job)
{
    return job->spec && job->spec->project && *job->spec->project ? job->spec->project : "default";
}

static bool is_in_scope(const struct serve_fsck *fsck, const Pb__Job *job)
{
    const Pb__FsckRequest *request = fsck->request;

    if (request->job && job->id != request->job)
        return false;
    return !request->project || !*request->project || !strcmp(project_of(job), request->project);
}

static bool is_some(const struct serve_fsck *fsck)
{
    return fsck->request->job || (fsck->request->project && *fsck->request->project);
}

/* The checkpoints that memory has of a job; *out is freed by the caller. */
static size_t rows_of(const struct core *core, int64_t job, const Pb__Checkpoint ***out)
{
    size_t count = core_checkpoints(core, job, NULL, 0);

    *out = mem_array(count + 1, sizeof(void *));
    return core_checkpoints(core, job, *out, count);
}

/* --- before */

static void note_before(struct serve_fsck *fsck, const Pb__Job *job)
{
    const struct core *core = fsck->serve->options.core;
    const Pb__Checkpoint **rows;
    size_t count = rows_of(core, job->id, &rows);
    bool open = core_job_open(core, job->id) != 0;

    map_put(fsck->jobs_before, (uint64_t)job->id,
            (void *)(uintptr_t)(1 + 2 * (uint64_t)job->attempt + open));
    for (size_t i = 0; i < count; i++) {
        map_put(fsck->before, (uint64_t)rows[i]->id, (void *)(uintptr_t)(rows[i]->version + 1));
        if (core_checkpoint_due(core, rows[i]->id))
            map_put(fsck->due_before, (uint64_t)rows[i]->id, fsck);
    }
    mem_free(rows);
}

static void ask_page(struct serve_fsck *fsck, int64_t after);

static void take_page(struct serve_fsck *fsck, Pb__CheckpointRows *page)
{
    fsck->pages = mem_resize(fsck->pages, fsck->pages_count + 1, sizeof(void *));
    fsck->pages[fsck->pages_count++] = page;
    fsck->rows_count += page->n_rows;
    fsck->rows_bytes += pb__checkpoint_rows__get_packed_size(page);
    for (size_t i = 0; i < page->n_rows; i++)
        map_put(fsck->stored, (uint64_t)page->rows[i]->row->id, page->rows[i]);
}

static void serve_fsck_paged(void *arg, enum status st, const struct error *err,
                             ProtobufCMessage *reply_take)
{
    struct serve_fsck *fsck = arg;
    Pb__CheckpointRows *page = (Pb__CheckpointRows *)(void *)reply_take;

    fsck->waiting--;
    if (st == STATUS_OK)
        take_page(fsck, page);
    if (st != STATUS_OK && fsck->call && !fsck->over)
        serve_fsck_fail(fsck, st, err->text);
    else if (fsck->rows_count > ROWS_MAX || fsck->rows_bytes > ROWS_BYTES_MAX)
        serve_fsck_fail(fsck, STATUS_EXHAUSTED,
                        "too many checkpoints for one run: narrow it by project or job");
    else if (st != STATUS_OK || fsck->over || !fsck->call || page->n_rows < PAGE_ROWS)
        serve_fsck_viewed(fsck);
    else
        ask_page(fsck, page->rows[page->n_rows - 1]->row->id);
}

static void ask_page(struct serve_fsck *fsck, int64_t after)
{
    struct store *store = fsck->serve->options.store;
    Pb__CheckpointQuery query = PB__CHECKPOINT_QUERY__INIT;

    query.has_after = query.has_limit = query.has_job = true;
    query.after = after;
    query.limit = PAGE_ROWS;
    query.job = fsck->request->job;
    query.project = fsck->request->project;
    fsck->waiting++;
    store->ops->query(store, &query.base, serve_fsck_paged, fsck);
}

void serve_fsck_view_begin(struct serve_fsck *fsck)
{
    const struct core *core = fsck->serve->options.core;

    fsck->before = map_create();
    fsck->due_before = map_create();
    fsck->jobs_before = map_create();
    fsck->stored = map_create();
    fsck->versions = map_create();
    serve_fsck_progress(fsck, "reading the database");
    for (const Pb__Job *job = core_job_before(core, 0); job; job = core_job_before(core, job->id))
        if (is_in_scope(fsck, job))
            note_before(fsck, job);
    ask_page(fsck, 0);
}

/* --- jobs of directories */

static void ask_jobs(struct serve_fsck *fsck);

static void serve_fsck_jobs_listed(void *arg, enum status st, const struct error *err,
                                   ProtobufCMessage *reply_take)
{
    struct serve_fsck *fsck = arg;

    fsck->waiting--;
    if (st == STATUS_OK) {
        fsck->jobs = mem_resize(fsck->jobs, fsck->jobs_count + 1, sizeof(void *));
        fsck->jobs[fsck->jobs_count++] = (Pb__ListJobsReply *)(void *)reply_take;
    }
    if (st != STATUS_OK && fsck->call && !fsck->over)
        serve_fsck_fail(fsck, st, err->text);
    else
        ask_jobs(fsck);
}

static void ask_jobs(struct serve_fsck *fsck)
{
    struct store *store = fsck->serve->options.store;
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    size_t left = fsck->ids_count - fsck->ids_next;

    if (left == 0 || !fsck->call || fsck->over) {
        serve_fsck_jobs_known(fsck);
        return;
    }
    filter.ids = fsck->ids + fsck->ids_next;
    filter.n_ids = left < IDS_A_QUESTION ? left : IDS_A_QUESTION;
    fsck->ids_next += filter.n_ids;
    request.filter = &filter;
    request.has_limit = request.has_brief = true;
    request.limit = IDS_A_QUESTION;
    request.brief = true;
    fsck->waiting++;
    store->ops->query(store, &request.base, serve_fsck_jobs_listed, fsck);
}

void serve_fsck_view_jobs(struct serve_fsck *fsck)
{
    const struct core *core = fsck->serve->options.core;
    struct map *seen = map_create();

    for (size_t i = 0; i < fsck->targets_count; i++)
        for (size_t k = 0; k < fsck->targets[i].count; k++) {
            long long job = 0;
            if (sscanf(fsck->targets[i].found[k]->path, "job-%lld/", &job) != 1 || job <= 0 ||
                core_job(core, job) || map_put(seen, (uint64_t)job, fsck))
                continue;
            fsck->ids = mem_resize(fsck->ids, fsck->ids_count + 1, sizeof(int64_t));
            fsck->ids[fsck->ids_count++] = job;
        }
    map_destroy(seen);
    ask_jobs(fsck);
}

/* --- after */

struct view {
    struct fsck_row *rows;
    struct fsck_job *jobs;
    struct fsck_listing *listings;
    size_t rows_count, rows_cap, jobs_count, jobs_cap;
};

static void add_row(struct view *view, const struct fsck_row *row)
{
    if (view->rows_count == view->rows_cap) {
        view->rows_cap = view->rows_cap ? 2 * view->rows_cap : 64;
        view->rows = mem_resize(view->rows, view->rows_cap, sizeof(*view->rows));
    }
    view->rows[view->rows_count++] = *row;
}

static void add_job(struct view *view, const struct fsck_job *job)
{
    if (view->jobs_count == view->jobs_cap) {
        view->jobs_cap = view->jobs_cap ? 2 * view->jobs_cap : 64;
        view->jobs = mem_resize(view->jobs, view->jobs_cap, sizeof(*view->jobs));
    }
    view->jobs[view->jobs_count++] = *job;
}

/* An attempt that was open before, is now, or was in between. */
static uint32_t live_from(const struct serve_fsck *fsck, const Pb__Job *job)
{
    uint64_t was = (uintptr_t)map_get(fsck->jobs_before, (uint64_t)job->id);
    uint32_t number = (uint32_t)((was - 1) / 2);

    if (!was)
        return 1; /* it is new */
    if ((was - 1) % 2)
        return number;
    if (job->attempt != number)
        return number + 1;
    return core_job_open(fsck->serve->options.core, job->id) ? number : FSCK_NOBODY;
}

static void add_memory_row(struct serve_fsck *fsck, struct view *view, const Pb__Checkpoint *row)
{
    const Pb__CheckpointRow *stored = map_get(fsck->stored, (uint64_t)row->id);
    uint64_t was = (uintptr_t)map_get(fsck->before, (uint64_t)row->id);
    struct fsck_row out = {
        .row = row,
        .stored = stored != NULL,
        .stale = stored && (fsck_row_is_stale(stored) || stored->row->version != row->version),
        .due = map_get(fsck->due_before, (uint64_t)row->id) ||
               core_checkpoint_due(fsck->serve->options.core, row->id),
        .changing = was != row->version + 1,
    };

    add_row(view, &out);
    map_put(fsck->versions, (uint64_t)row->id, (void *)(uintptr_t)(row->version + 1));
}

static void add_memory(struct serve_fsck *fsck, struct view *view)
{
    const struct core *core = fsck->serve->options.core;

    for (const Pb__Job *job = core_job_before(core, 0); job; job = core_job_before(core, job->id)) {
        const Pb__Checkpoint **rows;
        if (!is_in_scope(fsck, job))
            continue;
        add_job(view, &(struct fsck_job){.id = job->id,
                                         .ended = view_job_is_ended(job),
                                         .live_from = live_from(fsck, job),
                                         .submitted_us = job->submitted_us,
                                         .last_checkpoint = job->last_checkpoint});
        size_t count = rows_of(core, job->id, &rows);
        for (size_t i = 0; i < count; i++)
            add_memory_row(fsck, view, rows[i]);
        mem_free(rows);
    }
}

/* What memory does not hold: jobs that ended long ago. */
static void add_stored(struct serve_fsck *fsck, struct view *view)
{
    size_t at = 0;

    for (const Pb__CheckpointRow *stored; (stored = map_next(fsck->stored, &at));) {
        if (core_checkpoint(fsck->serve->options.core, stored->row->id))
            continue;
        add_row(view, &(struct fsck_row){
                          .row = stored->row, .stored = true, .stale = fsck_row_is_stale(stored)});
        map_put(fsck->versions, (uint64_t)stored->row->id,
                (void *)(uintptr_t)(stored->row->version + 1));
    }
    for (size_t i = 0; i < fsck->jobs_count; i++)
        for (size_t k = 0; k < fsck->jobs[i]->n_jobs; k++) {
            const Pb__Job *job = fsck->jobs[i]->jobs[k];
            if (is_in_scope(fsck, job) && !core_job(fsck->serve->options.core, job->id))
                add_job(view, &(struct fsck_job){.id = job->id,
                                                 .ended = true,
                                                 .live_from = FSCK_NOBODY,
                                                 .submitted_us = job->submitted_us});
        }
}

static int by_id(const void *a, const void *b)
{
    const struct fsck_row *left = a, *right = b;

    return (left->row->id > right->row->id) - (left->row->id < right->row->id);
}

static int job_by_id(const void *a, const void *b)
{
    const struct fsck_job *left = a, *right = b;

    return (left->id > right->id) - (left->id < right->id);
}

void serve_fsck_view_compare(struct serve_fsck *fsck, fsck_fn fn)
{
    struct view view = {0};

    add_memory(fsck, &view);
    add_stored(fsck, &view);
    if (view.rows_count)
        qsort(view.rows, view.rows_count, sizeof(*view.rows), by_id);
    if (view.jobs_count)
        qsort(view.jobs, view.jobs_count, sizeof(*view.jobs), job_by_id);
    view.listings = mem_array(fsck->targets_count + 1, sizeof(*view.listings));
    for (size_t i = 0; i < fsck->targets_count; i++) {
        const struct serve_fsck_target *target = &fsck->targets[i];
        view.listings[i] = (struct fsck_listing){
            .node = target->node,
            .vault = target->vault,
            .shared = target->shared,
            .slots = !*target->vault,
            .error = target->error,
            .others = target->others,
            .found = (const Pb__VaultFound *const *)target->found,
            .count = target->error ? 0 : target->count,
        };
    }
    fsck_compare(
        &(struct fsck_input){
            .rows = view.rows,
            .rows_count = view.rows_count,
            .jobs = view.jobs,
            .jobs_count = view.jobs_count,
            .listings = view.listings,
            .listings_count = fsck->targets_count,
            .gone_vaults = (const char *const *)fsck->request->gone_vaults,
            .gone_count = fsck->request->n_gone_vaults,
            .some = is_some(fsck),
        },
        fn, fsck, &fsck->summary);
    mem_free(view.rows);
    mem_free(view.jobs);
    mem_free(view.listings);
}

const Pb__Checkpoint *serve_fsck_view_row(const struct serve_fsck *fsck, int64_t id)
{
    const Pb__Checkpoint *row = core_checkpoint(fsck->serve->options.core, id);
    const Pb__CheckpointRow *stored = row ? NULL : map_get(fsck->stored, (uint64_t)id);

    return row ? row : stored ? stored->row : NULL;
}

void serve_fsck_view_fini(struct serve_fsck *fsck)
{
    for (size_t i = 0; i < fsck->pages_count; i++)
        pb__checkpoint_rows__free_unpacked(fsck->pages[i], NULL);
    for (size_t i = 0; i < fsck->jobs_count; i++)
        pb__list_jobs_reply__free_unpacked(fsck->jobs[i], NULL);
    mem_free(fsck->pages);
    mem_free(fsck->jobs);
    mem_free(fsck->ids);
    map_destroy(fsck->before);
    map_destroy(fsck->due_before);
    map_destroy(fsck->jobs_before);
    map_destroy(fsck->stored);
    map_destroy(fsck->versions);
}
