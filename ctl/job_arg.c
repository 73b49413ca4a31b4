#include "ctl/job_arg.h"
#include "base/mem.h"
#include "base/text.h"
#include "ctl/job_state.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include <string.h>

enum { PAGE = 2000, PAGES_MAX = 60, LISTED_MAX = 5 };

static const char *name_of(const Pb__Job *job)
{
    return job->spec && job->spec->name ? job->spec->name : "";
}

/* Jobs of one name: the only one, the only active one, or the newest. */
static int64_t choose_same(Pb__Job *const *jobs, size_t count, const char *name, bool newest_ok,
                           struct text *why)
{
    size_t found = 0, active = 0;
    int64_t newest = 0, running = 0;
    text_reset(why);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name_of(jobs[i]), name) != 0)
            continue;
        newest = found++ == 0 ? jobs[i]->id : newest;
        if (!job_state_ended(jobs[i]->state)) {
            running = active++ == 0 ? jobs[i]->id : running;
            if (active <= LISTED_MAX)
                text_addf(why, "%s%lld", active > 1 ? ", " : "", (long long)jobs[i]->id);
        }
    }
    if (found == 1 || (newest_ok && active == 0))
        return newest;
    if (active == 1)
        return running;
    return found == 0 ? 0 : newest_ok ? newest : -1;
}

int64_t job_arg_choose(Pb__Job *const *jobs, size_t count, const char *word, bool newest_ok,
                       struct text *why)
{
    int64_t id = choose_same(jobs, count, word, newest_ok, why);
    const char *name = NULL;
    size_t names = 0;
    if (id != 0)
        return id;
    text_reset(why);
    for (size_t i = 0; i < count; i++) {
        const char *other = name_of(jobs[i]);
        if (strncmp(other, word, strlen(word)) != 0 || (name && strcmp(other, name) == 0))
            continue;
        name = other;
        if (++names <= LISTED_MAX)
            text_addf(why, "%s'%s'", names > 1 ? ", " : "", other);
    }
    if (names == 1)
        return choose_same(jobs, count, name, newest_ok, why);
    return names == 0 ? 0 : -1;
}

/* One name is asked for by name; only the start of one needs the list. */
static int list_jobs(struct connect *connect, const char *name, int64_t before,
                     Pb__ListJobsReply **out)
{
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    filter.name = (char *)(uintptr_t)name;
    request.filter = &filter;
    request.has_brief = request.brief = 1;
    request.has_limit = 1;
    request.limit = PAGE;
    request.has_before = before != 0;
    request.before = before;
    return connect_ask(connect, "ListJobs", &request.base, (ProtobufCMessage **)out);
}

/* The nearest name on this page to *near, when none is there yet. */
static void note_near(const Pb__ListJobsReply *reply, const char *word, char **near)
{
    const char **names = mem_array(reply->n_jobs + 1, sizeof(*names));
    for (size_t i = 0; i < reply->n_jobs; i++)
        names[i] = name_of(reply->jobs[i]);
    const char *found = *near ? NULL : text_nearest(word, names, reply->n_jobs);
    if (found)
        *near = mem_strdup(found);
    mem_free(names);
}

static int report(int64_t id, const char *word, const char *near, const struct text *why,
                  int64_t *out)
{
    if (id > 0) {
        *out = id;
        return VERB_OK;
    }
    if (id == 0 && near)
        output_error("no job is called '%s'; did you mean '%s'?", word, near);
    else if (id == 0)
        output_error("no job is called '%s' (see `rondoctl jobs`)", word);
    else
        output_error("'%s' is not one job: %s; give an id or more of the name", word,
                     text_get(why));
    return VERB_REFUSED;
}

/* Pages through all jobs for those whose name starts with the word. */
static int find_by_start(struct connect *connect, const char *word, bool newest_ok, int64_t *id)
{
    struct text why;
    SCOPED_TEXT char *near = NULL;
    int64_t before = 0, found = 0;
    int code = VERB_OK;
    text_init(&why, 0);
    for (int page = 0; page < PAGES_MAX && code == VERB_OK && found == 0; page++) {
        Pb__ListJobsReply *reply;
        code = list_jobs(connect, NULL, before, &reply);
        if (code != VERB_OK)
            break;
        found = job_arg_choose(reply->jobs, reply->n_jobs, word, newest_ok, &why);
        note_near(reply, word, &near);
        before = reply->n_jobs ? reply->jobs[reply->n_jobs - 1]->id : 0;
        bool last = reply->n_jobs < PAGE || before <= 1;
        protobuf_c_message_free_unpacked(&reply->base, NULL);
        if (last)
            break;
    }
    if (code == VERB_OK)
        code = report(found, word, near, &why, id);
    text_fini(&why);
    return code;
}

int job_arg_check(struct connect *connect, int64_t id)
{
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    Pb__ListJobsReply *reply;
    filter.ids = &id;
    filter.n_ids = 1;
    request.filter = &filter;
    request.has_brief = request.brief = 1;
    int code = connect_ask(connect, "ListJobs", &request.base, (ProtobufCMessage **)&reply);
    if (code != VERB_OK)
        return code;
    if (reply->n_jobs == 0) {
        output_error("no job %lld", (long long)id);
        code = VERB_REFUSED;
    }
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return code;
}

int job_arg_find(struct connect *connect, const char *word, bool newest_ok, int64_t *id)
{
    Pb__ListJobsReply *reply;
    struct text why;
    if (text_to_i64(word, 1, INT64_MAX, id))
        return VERB_OK;
    if (!*word || !text_is_utf8(word, strlen(word))) {
        output_error("a job is an id or a name");
        return VERB_USAGE;
    }
    int code = list_jobs(connect, word, 0, &reply);
    if (code != VERB_OK)
        return code;
    text_init(&why, 0);
    int64_t found = job_arg_choose(reply->jobs, reply->n_jobs, word, newest_ok, &why);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    code =
        found ? report(found, word, NULL, &why, id) : find_by_start(connect, word, newest_ok, id);
    text_fini(&why);
    return code;
}
