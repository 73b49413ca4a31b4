/* reader_jobs.c - pages of jobs, newest first.
 *
 * Memory holds all jobs that have not ended and the newest that have. Ids are given without gaps
 * but for submits that failed, so a missing id is the sign that the store may know more: the page
 * goes on from the store there. With the store away, memory goes on alone and the answer says its
 * age. */
#include "daemon/reader_question.h"

#define READER_JOBS_MAX   5000
#define READER_JOBS_BYTES ((size_t)4 << 20)
#define READER_IDS_MAX    5000

struct reader_page {
    struct reader_question *q;
    const Pb__ListJobsRequest *request;
    Pb__ListJobsReply *reply;
    size_t bytes;
    bool full;
};

static void reader_page_open(struct reader_page *page, struct reader_question *q)
{
    page->q = q;
    page->request = (const Pb__ListJobsRequest *)(void *)q->request;
    page->reply = (Pb__ListJobsReply *)(void *)q->answer;
    page->bytes = 0;
    page->full = false;
    for (size_t i = 0; i < page->reply->n_jobs; i++)
        page->bytes += protobuf_c_message_get_packed_size(&page->reply->jobs[i]->base);
}

/* The page is full by count or by bytes: the next one starts below its last job. */
static void reader_page_add(struct reader_page *page, const Pb__Job *row)
{
    Pb__ListJobsReply *reply = page->reply;

    if (reply->n_jobs >= page->request->limit || page->bytes > READER_JOBS_BYTES) {
        page->full = true;
        reply->has_next_before = true;
        reply->next_before = reply->jobs[reply->n_jobs - 1]->id;
        return;
    }
    Pb__Job *job = view_job(page->q->arena, reader_core(page->q->reader),
                            reader_question_who(page->q), row, page->request->brief);
    page->bytes += protobuf_c_message_get_packed_size(&job->base);
    reply->jobs[reply->n_jobs++] = job;
}

static bool reader_page_wants_ended(const struct reader_page *page)
{
    return !page->request->filter || !page->request->filter->active;
}

/* Fills the page from memory below `before` (0: from the newest). Answers the id below which only
 * the store can tell what comes next, or 0. */
static int64_t reader_page_from_memory(struct reader_page *page, int64_t before, bool stop_at_gap)
{
    const struct core *core = reader_core(page->q->reader);
    int64_t last = before;

    for (const Pb__Job *row = core_job_before(core, before); row && !page->full;
         row = core_job_before(core, last)) {
        if (stop_at_gap && last > 0 && row->id < last - 1)
            return last;
        last = row->id;
        if (view_job_matches(page->request->filter, row))
            reader_page_add(page, row);
    }
    return !page->full && stop_at_gap && last != 1 ? last : 0;
}

static void reader_jobs_finish(struct reader_question *q)
{
    Pb__ListJobsReply *reply = (Pb__ListJobsReply *)(void *)q->answer;
    struct core_health health = {0};

    core_health(reader_core(q->reader), &health);
    reply->has_age_ms = true;
    reply->age_ms = health.stale_ms;
    reader_question_end(q, STATUS_OK, NULL, &reply->base);
}

static void reader_jobs_stored(struct reader_question *q, enum status st, const struct error *err,
                               ProtobufCMessage *stored)
{
    const Pb__ListJobsReply *more = (const Pb__ListJobsReply *)(void *)stored;
    struct reader_page page;

    (void)err; /* memory alone answers then, with its age */
    reader_page_open(&page, q);
    if (st != STATUS_OK) {
        reader_page_from_memory(&page, q->from, false);
    } else {
        for (size_t i = 0; i < more->n_jobs && !page.full; i++) {
            const Pb__Job *newer = core_job(reader_core(q->reader), more->jobs[i]->id);
            const Pb__Job *row = newer ? newer : more->jobs[i];
            if (view_job_matches(page.request->filter, row))
                reader_page_add(&page, row);
        }
        if (!page.full && more->has_next_before && more->next_before > 0) {
            page.reply->has_next_before = true;
            page.reply->next_before = more->next_before;
        }
    }
    reader_jobs_finish(q);
}

static void reader_jobs_ask_store(struct reader_question *q, int64_t before)
{
    const Pb__ListJobsRequest *request = (const Pb__ListJobsRequest *)(void *)q->request;
    const Pb__ListJobsReply *reply = (const Pb__ListJobsReply *)(void *)q->answer;
    Pb__ListJobsRequest more = *request;

    q->from = before;
    more.has_before = before > 0;
    more.before = before;
    more.has_limit = true;
    more.limit = request->limit - (uint32_t)reply->n_jobs;
    if (more.limit == 0)
        more.limit = 1; /* only to learn whether there is a next page */
    reader_question_store(q, &more.base, reader_jobs_stored);
}

/* Named ids: those that memory knows, and one question for the rest. */
static bool reader_jobs_all_known(const struct reader_question *q, const Pb__JobFilter *filter)
{
    for (size_t i = 0; i < filter->n_ids; i++)
        if (!core_job(reader_core(q->reader), filter->ids[i]))
            return false;
    return true;
}

static void reader_jobs_named(struct reader_question *q, struct reader_page *page)
{
    const Pb__ListJobsRequest *request = page->request;
    int64_t before = request->before > 0 ? request->before : 0;

    if (reader_page_wants_ended(page) && !reader_jobs_all_known(q, request->filter)) {
        reader_jobs_ask_store(q, before);
        return;
    }
    reader_page_from_memory(page, before, false);
    reader_jobs_finish(q);
}

void reader_jobs_list(struct reader_question *q)
{
    const Pb__ListJobsRequest *request = (const Pb__ListJobsRequest *)(void *)q->request;
    Pb__ListJobsReply *reply = arena_alloc(q->arena, sizeof(*reply));
    struct reader_page page;

    pb__list_jobs_reply__init(reply);
    q->answer = &reply->base;
    if (request->limit == 0 || request->limit > READER_JOBS_MAX ||
        (request->filter && request->filter->n_ids > READER_IDS_MAX)) {
        reader_question_fail(q, STATUS_INVALID, "limit is 1 to %d, and at most %d ids",
                             READER_JOBS_MAX, READER_IDS_MAX);
        return;
    }
    reply->jobs = arena_alloc(q->arena, (request->limit + 1) * sizeof(*reply->jobs));
    reader_page_open(&page, q);
    if (request->filter && request->filter->n_ids > 0) {
        reader_jobs_named(q, &page);
        return;
    }
    int64_t gap = reader_page_from_memory(&page, request->before > 0 ? request->before : 0,
                                          reader_page_wants_ended(&page));
    if (gap > 0)
        reader_jobs_ask_store(q, gap);
    else
        reader_jobs_finish(q);
}
