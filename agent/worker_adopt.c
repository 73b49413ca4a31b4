/* worker_adopt.c - workers that an earlier agent started: read from their directories, taken up.
 *
 * A directory whose launch cannot be read never came to life, or is damaged: it is adopted without
 * a launch only if its name says whose it is, so that the launcher can end what may run there. */
#include "agent/actual.h"
#include "agent/code.h"
#include "agent/save.h"
#include "agent/worker_part.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAUNCH_BYTES_MAX ((size_t)16 << 20)

struct adoption {
    struct agent *agent;
    char tag[SPOOL_TAG_MAX];
    void (*done)(struct agent *agent);
};
enum adopt_step { ADOPT_LAUNCH, ADOPT_START, ADOPT_VERDICT, ADOPT_NEWEST, ADOPT_LIST };

/* "<job>.<attempt>.<role>.<rank>.<incarnation>", read from both ends: a role may hold dots. */
static bool parse_tag(const char *tag, Pb__WorkerKey *key, char role[SPOOL_TAG_MAX])
{
    char text[SPOOL_TAG_MAX];
    int64_t job, attempt, rank, incarnation;
    (void)snprintf(text, sizeof(text), "%s", tag);
    char *last = strrchr(text, '.');
    if (!last || !text_to_i64(last + 1, 1, UINT32_MAX, &incarnation))
        return false;
    *last = '\0';
    char *before = strrchr(text, '.');
    if (!before || !text_to_i64(before + 1, 0, UINT32_MAX, &rank))
        return false;
    *before = '\0';
    char *first = strchr(text, '.'), *second = first ? strchr(first + 1, '.') : NULL;
    if (!second || !second[1])
        return false;
    *first = *second = '\0';
    if (!text_to_i64(text, 1, INT64_MAX, &job) || !text_to_i64(first + 1, 0, UINT32_MAX, &attempt))
        return false;
    (void)snprintf(role, SPOOL_TAG_MAX, "%s", second + 1);
    key->has_job = key->has_attempt = key->has_rank = key->has_incarnation = true;
    key->job = job;
    key->attempt = (uint32_t)attempt;
    key->rank = (uint32_t)rank;
    key->incarnation = (uint32_t)incarnation;
    key->role = role;
    return true;
}

static struct worker *make_worker(struct agent *agent, const char *tag,
                                  const struct files_step *launch, int64_t start_us)
{
    char role[SPOOL_TAG_MAX];
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;
    Pb__DesiredWorker bare = PB__DESIRED_WORKER__INIT;
    Pb__DesiredWorker *known = NULL;
    struct worker *worker;
    if (!parse_tag(tag, &key, role))
        return NULL;
    if (launch->len)
        known = pb__desired_worker__unpack(NULL, launch->len, launch->bytes);
    if (known && !known->key) {
        pb__desired_worker__free_unpacked(known, NULL);
        known = NULL;
    }
    bare.key = &key;
    worker = worker_create(agent, tag, known ? known : &bare, start_us);
    if (known)
        pb__desired_worker__free_unpacked(known, NULL);
    return worker;
}

static void adopt_verdict(struct worker *worker, const struct files_step *step)
{
    if (!step->len)
        return;
    char *text = NULL;
    long cause = strtol(step->bytes, &text, 10);
    if (cause <= EXIT_CAUSE_NONE || cause >= EXIT_CAUSE_COUNT)
        return;
    worker->cause = (enum exit_cause)cause;
    worker->cause_text = mem_strdup(text && *text == ' ' ? text + 1 : "");
}

/* Newer than what the launch said. */
static void adopt_newest(struct worker *worker, const struct files_step *step)
{
    Pb__ResumePoint *newest =
        step->len ? pb__resume_point__unpack(NULL, step->len, step->bytes) : NULL;
    if (!newest)
        return;
    if (worker->desired->newest)
        pb__resume_point__free_unpacked(worker->desired->newest, NULL);
    worker->desired->newest = newest;
}

static void adopt_code(struct worker *worker)
{
    const Pb__Launch *launch = worker->desired->launch;
    const Pb__Code *code = launch ? launch->code : NULL;
    if (!code || !code_digest_is_valid(code->digest) || code->on_nodes)
        return;
    worker->code_digest = mem_strdup(code->digest);
    code_cache_hold(worker->agent->codes, code->digest);
}

static void adopt_paths(struct worker *worker)
{
    char vault[1024];
    const Pb__Launch *launch = worker->desired->launch;
    const Pb__WorkerKey *key = worker->desired->key;
    SCOPED_TEXT char *reports = mem_printf("%s/reports", worker->dir);
    struct tail_key tail = {key->job, key->attempt, key->rank, key->incarnation, key->role};
    if (launch && launch->checkpoint && launch->checkpoint->watch &&
        saves_vault(worker->agent->saves, launch->vault, vault, sizeof(vault)))
        worker->attempt_dir = worker_attempt_dir(worker, vault);
    spool_source_add(worker->agent->spool, worker->tag, &tail, reports);
    spool_kick(worker->agent->spool, worker->tag);
}

static void adopt_page_done(void *arg, enum status st, const struct error *err,
                            struct files_batch *batch)
{
    struct worker_ref *ref = arg;
    struct agent *agent = ref->agent;
    struct worker *worker = worker_ref_take(ref);
    struct page *page = st == STATUS_OK ? batch->steps[0].page : NULL;
    if (st != STATUS_OK && worker)
        log_warn("worker.page", log_str("worker", worker->tag), log_err(err));
    if (worker && !worker->ended_us) {
        worker->page = page;
        worker_apply_gate(worker);
    } else if (page) {
        agent->files->ops->unmap(agent->files, page);
    }
}

/* Page and socket again: the worker finds this agent where the earlier one was. */
static void adopt_handles(struct worker *worker)
{
    struct agent *agent = worker->agent;
    struct launcher *launcher = agent->options.launcher;
    struct socks *socks = agent->options.socks;
    SCOPED_TEXT char *page = mem_printf("%s/page", worker->dir);
    SCOPED_TEXT char *sock = mem_printf("%s/sock", worker->dir);
    struct files_batch *batch = files_batch_create();
    (void)files_step_add(batch, FILES_PAGE, page);
    files_run(agent->files, batch, adopt_page_done, worker_ref_create(worker));
    worker->sock =
        socks->ops->open(socks, sock, worker->user ? worker->user->uid : -1,
                         worker->user ? worker->user->gid : -1, worker_start_sock_events(), worker);
    worker->proc =
        launcher->ops->adopt(launcher, worker->dir, worker->tag, worker_launcher_fn(), worker);
}

static void adopt_user(struct worker *worker, int64_t uid, int64_t gid, const char *name)
{
    struct agent *agent = worker->agent;
    if (uid < 0 || !agent->options.root)
        return;
    struct user *user = map_get_text(agent->users, name);
    if (!user) {
        user = NEW(struct user);
        user->name = mem_strdup(name);
        user->uid = uid;
        user->gid = gid;
        (void)map_put_text(agent->users, name, user);
    }
    worker->user = user;
}

static void adopt_one(struct agent *agent, const char *tag, const struct files_batch *batch)
{
    int64_t start_us = 0, uid = -1, gid = -1;
    char boot[65] = "", name[65] = "";
    const struct files_step *start = &batch->steps[ADOPT_START];
    if (start->len)
        (void)sscanf(start->bytes, "%" SCNd64 " %64s %" SCNd64 " %" SCNd64 " %64s", &start_us, boot,
                     &uid, &gid, name);
    struct worker *worker = make_worker(agent, tag, &batch->steps[ADOPT_LAUNCH], start_us);
    if (!worker) {
        log_warn("worker.stranger", log_str("dir", tag));
        return;
    }
    bool vanished = boot[0] && strcmp(boot, agent->options.boot_id) != 0;
    log_info("worker.adopt", log_str("worker", tag), log_int("rebooted", vanished));
    adopt_user(worker, uid, gid, name);
    adopt_verdict(worker, &batch->steps[ADOPT_VERDICT]);
    adopt_newest(worker, &batch->steps[ADOPT_NEWEST]);
    adopt_paths(worker);
    saves_adopt(agent->saves, worker, batch->steps[ADOPT_LIST].names,
                batch->steps[ADOPT_LIST].names_count);
    if (vanished) {
        worker_blame(worker, EXIT_CAUSE_REBOOT, "the machine was restarted");
        worker_event(worker, WORKER_EV_VANISHED);
        return;
    }
    adopt_code(worker);
    if (worker->cause == EXIT_CAUSE_LAUNCH || worker->cause == EXIT_CAUSE_RESUME)
        worker_event(worker, WORKER_EV_FAILED); /* decided before: it never ran */
    else
        adopt_handles(worker);
}

static void adopt_done(void *arg, enum status st, const struct error *err,
                       struct files_batch *batch)
{
    struct adoption *adoption = arg;
    struct agent *agent = adoption->agent;
    if (st == STATUS_OK)
        adopt_one(agent, adoption->tag, batch);
    else
        log_error("worker.adopt", log_str("worker", adoption->tag), log_err(err));
    void (*done)(struct agent * agent) = adoption->done;
    pending_destroy(adoption);
    if (--agent->adopting == 0)
        done(agent);
}

void worker_adopt_all(struct agent *agent, char *const *names, size_t count,
                      void (*done)(struct agent *agent))
{
    static const char *const files[] = {"launch", "start", "verdict", "newest"};
    agent->adopting = 1;
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) >= SPOOL_TAG_MAX)
            continue;
        struct adoption *adoption = PENDING(&agent->pending, struct adoption);
        struct files_batch *batch = files_batch_create();
        adoption->agent = agent;
        adoption->done = done;
        (void)snprintf(adoption->tag, sizeof(adoption->tag), "%s", names[i]);
        for (size_t j = 0; j < COUNT_OF(files); j++) {
            SCOPED_TEXT char *path = mem_printf("%s/%s/%s", agent->work_dir, names[i], files[j]);
            files_read(batch, path, 0, LAUNCH_BYTES_MAX)->missing_ok = true;
        }
        SCOPED_TEXT char *dir = mem_printf("%s/%s", agent->work_dir, names[i]);
        (void)files_step_add(batch, FILES_LIST, dir);
        agent->adopting++;
        files_run(agent->files, batch, adopt_done, adoption);
    }
    if (--agent->adopting == 0)
        done(agent);
}
