/* worker_start.c - preparing a worker: a row of stages, each of which ends in start_step.
 *
 * user -> code -> resume point -> directory -> socket -> delay -> launch. A worker that is stopped
 * meanwhile is no longer PREPARING: the stage that is under way ends, and nothing follows. */
#include "agent/actual.h"
#include "agent/code.h"
#include "agent/environment.h"
#include "agent/lead.h"
#include "agent/save.h"
#include "agent/spare.h"
#include "agent/worker_part.h"
#include "base/log.h"
#include "worker/env.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LISTEN_POLL_US 20000
#define LISTEN_WAIT_US 30000000
#define PROC_TCP_BYTES ((size_t)1 << 20)

static void start_next(struct worker *worker);

/* A stage has ended. st not OK: the worker cannot be started, text says why. */
static void start_step(struct worker *worker, enum status st, enum exit_cause cause,
                       const char *text)
{
    worker->holds &= ~(unsigned)WORKER_HOLD_START;
    if (worker->state != PB__ACTUAL_WORKER__STATE__PREPARING) {
        loop_timer_set(worker->timer, 0); /* given up meanwhile: nothing runs, so it is gone */
        return;
    }
    if (st != STATUS_OK) {
        log_warn("worker.start", log_str("worker", worker->tag), log_str("err", text));
        worker_blame(worker, cause, text);
        worker_event(worker, WORKER_EV_FAILED);
        return;
    }
    worker->stage++;
    start_next(worker);
}

static void start_good(struct worker *worker)
{
    start_step(worker, STATUS_OK, EXIT_CAUSE_NONE, NULL);
}

/* --- user */

static const char *user_name(const struct worker *worker)
{
    const struct agent *agent = worker->agent;
    const char *asked = worker->desired->launch->user;
    if (!agent->options.root)
        return NULL;
    if (asked && *asked)
        return asked;
    return *agent->config->worker_user ? agent->config->worker_user : "nobody";
}

static void start_user_done(void *arg, enum status st, const struct error *err,
                            struct files_batch *batch)
{
    struct worker *worker = worker_ref_take(arg);
    const struct files_step *step = &batch->steps[0];
    if (!worker)
        return;
    if (st == STATUS_OK && !map_get_text(worker->agent->users, step->path)) {
        struct user *user = NEW(struct user);
        user->name = mem_strdup(step->path);
        user->home = mem_strdup(step->home);
        user->uid = step->uid;
        user->gid = step->gid;
        (void)map_put_text(worker->agent->users, step->path, user);
    }
    worker->user = map_get_text(worker->agent->users, step->path);
    start_step(worker, st, EXIT_CAUSE_LAUNCH, err ? err->text : NULL);
}

static void stage_user(struct worker *worker)
{
    const char *name = user_name(worker);
    worker->user = name ? map_get_text(worker->agent->users, name) : NULL;
    if (!name || worker->user) {
        start_good(worker);
        return;
    }
    struct files_batch *batch = files_batch_create();
    (void)files_step_add(batch, FILES_USER, name);
    files_run(worker->agent->files, batch, start_user_done, worker_ref_create(worker));
}

/* --- code */

static void start_code_done(void *arg, enum status st, const struct error *err, const char *dir)
{
    struct worker *worker = worker_ref_take(arg);
    if (!worker)
        return;
    if (st == STATUS_OK) {
        worker->code_dir = mem_strdup(dir);
        worker->code_digest = mem_strdup(worker->desired->launch->code->digest);
    }
    start_step(worker, st, EXIT_CAUSE_LAUNCH, err ? err->text : NULL);
}

static void stage_code(struct worker *worker)
{
    const Pb__Code *code = worker->desired->launch->code;
    bool packed = code && code->digest && *code->digest && !code->on_nodes;
    if (!packed) {
        if (code && code->on_nodes && code->path && *code->path == '/')
            worker->code_dir = mem_strdup(code->path);
        start_good(worker);
    } else if (!code_digest_is_valid(code->digest)) {
        start_step(worker, STATUS_INVALID, EXIT_CAUSE_LAUNCH, "code.digest is no SHA-256");
    } else {
        code_cache_get(worker->agent->codes, code->digest, start_code_done,
                       worker_ref_create(worker));
    }
}

/* --- resume point */

static void start_resume_done(void *arg, enum status st, const struct error *err)
{
    struct worker *worker = worker_ref_take(arg);
    char text[320] = "";
    if (!worker)
        return;
    bool away = st == STATUS_UNAVAILABLE || st == STATUS_DENIED || st == STATUS_EXHAUSTED;
    if (st != STATUS_OK)
        (void)snprintf(text, sizeof(text), "the checkpoint to resume from %s: %s",
                       away ? "cannot be seen by this node" : "is not good", err->text);
    start_step(worker, st, away ? EXIT_CAUSE_SOURCE : EXIT_CAUSE_RESUME, text);
}

static bool path_is_plain(const char *path)
{
    return path && *path && *path != '/' && !strstr(path, "..");
}

static enum exit_cause fetch_cause(enum status st)
{
    if (st == STATUS_EXHAUSTED)
        return EXIT_CAUSE_LAUNCH;
    return st == STATUS_DATA_LOSS ? EXIT_CAUSE_RESUME : EXIT_CAUSE_SOURCE;
}

static void resume_verify(struct worker *worker)
{
    struct agent *agent = worker->agent;
    const Pb__ResumePoint *resume = worker->desired->launch->resume;
    char vault[1024] = "";
    (void)saves_vault(agent->saves, resume->vault, vault, sizeof(vault));
    saves_verify(agent->saves, vault, resume->path, resume->manifest_digest, start_resume_done,
                 worker_ref_create(worker));
}

/* The first word that nobody has its bytes is what makes the daemon turn to an older one. */
static void start_fetch_done(void *arg, enum status st, const struct error *err)
{
    struct worker *worker = worker_ref_take(arg);
    char text[320] = "";
    if (!worker)
        return;
    if (st == STATUS_OK && worker->state == PB__ACTUAL_WORKER__STATE__PREPARING) {
        resume_verify(worker);
        return;
    }
    if (st != STATUS_OK)
        (void)snprintf(text, sizeof(text), "checkpoint %" PRId64 " could not be fetched: %s",
                       worker->desired->launch->resume->checkpoint, err->text);
    if (st == STATUS_DATA_LOSS) {
        mem_free(worker->damaged);
        worker->damaged = mem_strdup(err->text);
    }
    start_step(worker, st, fetch_cause(st), text);
}

static void stage_resume(struct worker *worker)
{
    struct agent *agent = worker->agent;
    const Pb__ResumePoint *resume = worker->desired->launch->resume;
    char vault[1024];
    if (!resume || !resume->path || !*resume->path) {
        start_good(worker);
        return;
    }
    if (!path_is_plain(resume->path) ||
        !saves_vault(agent->saves, resume->vault, vault, sizeof(vault))) {
        start_step(worker, STATUS_PRECONDITION, EXIT_CAUSE_RESUME,
                   "this node has no vault of the name that the resume point is in");
        return;
    }
    worker->resume_dir = mem_printf("%s/%s", vault, resume->path);
    mem_free(worker->resume_shm);
    worker->resume_shm = saves_resume_shm(agent->saves, resume);
    if (resume->fetch)
        saves_fetch(agent->saves, worker, start_fetch_done, worker_ref_create(worker));
    else
        resume_verify(worker);
}

/* --- directory */

static void own(struct files_step *step, const struct user *user)
{
    if (user) {
        step->uid = user->uid;
        step->gid = user->gid;
    }
}

/* The worker may use its directory's files, not change their names: the directory is the agent's.
 */
static void add_dir(struct files_batch *batch, const struct worker *worker)
{
    SCOPED_TEXT char *spare = spares_take(worker->agent->spares);
    if (spare) {
        struct files_step *take = files_step_add(batch, FILES_RENAME, spare);
        take->to = mem_strdup(worker->dir);
        take->optional = true;
    }
    struct files_step *step = files_dir(batch, worker->dir, worker->user ? 0750 : 0700);
    step->claim = true;
    if (worker->user)
        step->gid = worker->user->gid;
}

static void add_launch(struct files_batch *batch, const struct worker *worker)
{
    size_t len = pb__desired_worker__get_packed_size(worker->desired);
    SCOPED(mem_free) void *bytes = mem_alloc(len + 1);
    SCOPED_TEXT char *path = mem_printf("%s/launch", worker->dir);
    SCOPED_TEXT char *start = mem_printf("%s/start", worker->dir);
    char text[320];
    (void)pb__desired_worker__pack(worker->desired, bytes);
    (void)files_write(batch, path, bytes, len, 0600);
    (void)snprintf(text, sizeof(text), "%" PRId64 " %.64s %" PRId64 " %" PRId64 " %.64s",
                   worker->start_us, worker->agent->options.boot_id,
                   worker->user ? worker->user->uid : -1, worker->user ? worker->user->gid : -1,
                   worker->user ? worker->user->name : "-");
    (void)files_write(batch, start, text, strlen(text) + 1, 0600);
}

static void add_worker_file(struct files_batch *batch, const struct worker *worker,
                            const char *name)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", worker->dir, name);
    struct files_step *step = files_append(batch, path, "", 0);
    own(step, worker->user);
}

static void add_page(struct files_batch *batch, const struct worker *worker)
{
    SCOPED_TEXT char *path = mem_printf("%s/page", worker->dir);
    struct files_step *step = files_step_add(batch, FILES_PAGE, path);
    step->len = PAGE_BYTES;
    step->mode = 0600;
    own(step, worker->user);
}

static void add_ranks(struct files_batch *batch, const struct worker *worker)
{
    struct text table;
    SCOPED_TEXT char *path = mem_printf("%s/ranks.json", worker->dir);
    text_init(&table, 0);
    environment_rank_table(worker->desired->launch, &table);
    struct files_step *step = files_write(batch, path, text_get(&table), table.len, 0640);
    if (worker->user)
        step->gid = worker->user->gid;
    text_fini(&table);
}

/* Where a program without the SDK may leave its checkpoints. */
static void add_attempt_dir(struct files_batch *batch, struct worker *worker)
{
    char vault[1024];
    const Pb__Launch *launch = worker->desired->launch;
    const Pb__WorkerKey *key = worker->desired->key;
    if (!launch->checkpoint || !launch->checkpoint->watch ||
        !saves_vault(worker->agent->saves, launch->vault, vault, sizeof(vault)))
        return;
    SCOPED_TEXT char *job = mem_printf("%s/job-%" PRId64, vault, key->job);
    mem_free(worker->attempt_dir);
    worker->attempt_dir = worker_attempt_dir(worker, vault);
    (void)files_dir(batch, job, 0755);
    own(files_dir(batch, worker->attempt_dir, worker->user ? 0750 : 0700), worker->user);
}

static void start_dir_done(void *arg, enum status st, const struct error *err,
                           struct files_batch *batch)
{
    struct worker_ref *ref = arg;
    struct agent *agent = ref->agent;
    struct worker *worker = worker_ref_take(ref);
    for (size_t i = 0; i < batch->ran; i++) {
        struct page *page = batch->steps[i].page;
        if (page && worker)
            worker->page = page;
        else if (page)
            agent->files->ops->unmap(agent->files, page);
    }
    if (!worker)
        return;
    if (st == STATUS_OK) {
        const Pb__WorkerKey *key = worker->desired->key;
        struct tail_key tail = {key->job, key->attempt, key->rank, key->incarnation, key->role};
        SCOPED_TEXT char *path = mem_printf("%s/reports", worker->dir);
        spool_source_add(agent->spool, worker->tag, &tail, path);
        worker_apply_gate(worker);
    }
    start_step(worker, st, EXIT_CAUSE_LAUNCH, err ? err->text : NULL);
}

static void stage_dir(struct worker *worker)
{
    struct files_batch *batch = files_batch_create();
    struct files_step *step;
    SCOPED_TEXT char *tmp = mem_printf("%s/tmp", worker->dir);
    add_dir(batch, worker);
    add_launch(batch, worker);
    add_worker_file(batch, worker, "reports");
    add_worker_file(batch, worker, "error.json");
    add_page(batch, worker);
    add_ranks(batch, worker);
    step = files_dir(batch, tmp, 0700);
    step->claim = true;
    own(step, worker->user);
    add_attempt_dir(batch, worker);
    files_run(worker->agent->files, batch, start_dir_done, worker_ref_create(worker));
}

/* --- socket */

static void worker_sock_opened(void *arg, enum status st, const struct error *err)
{
    struct worker *worker = arg;
    if (worker->holds & WORKER_HOLD_START)
        start_step(worker, st, EXIT_CAUSE_LAUNCH, err ? err->text : NULL);
    else if (st != STATUS_OK)
        log_warn("worker.socket", log_str("worker", worker->tag), log_err(err));
}

static void worker_sock_ask(void *arg, uint64_t connection, const Pb__WorkerAsk *ask)
{
    struct worker *worker = arg;
    Pb__WorkerAnswer answer = PB__WORKER_ANSWER__INIT;
    answer.has_number = answer.has_status = true;
    answer.number = ask->number;
    switch (ask->kind) {
    case PB__WORKER_ASK__KIND__SAVE_DIR:
    case PB__WORKER_ASK__KIND__COMMIT:
    case PB__WORKER_ASK__KIND__ABORT_SAVE:
    case PB__WORKER_ASK__KIND__STAGE:
    case PB__WORKER_ASK__KIND__STAGED:
        saves_ask(worker->agent->saves, worker, connection, ask);
        return;
    case PB__WORKER_ASK__KIND__JOIN:
        worker->joined = true;
        break;
    case PB__WORKER_ASK__KIND__FINISH:
        worker->finished = true;
        break;
    case PB__WORKER_ASK__KIND__SAVING:
        worker->saving_us = loop_now_us(worker->agent->loop);
        break;
    default:
        answer.status = STATUS_UNIMPLEMENTED;
        answer.error = (char *)(uintptr_t) "this agent does not know that request";
    }
    actual_mark(worker->agent->actual, worker->tag);
    worker->sock->ops->answer(worker->sock, connection, &answer);
}

static const struct sock_events worker_sock_events = {worker_sock_opened, worker_sock_ask};

static void stage_sock(struct worker *worker)
{
    struct socks *socks = worker->agent->options.socks;
    SCOPED_TEXT char *path = mem_printf("%s/sock", worker->dir);
    worker->sock =
        socks->ops->open(socks, path, worker->user ? worker->user->uid : -1,
                         worker->user ? worker->user->gid : -1, &worker_sock_events, worker);
}

/* --- delay: rank 0 listens first */

static enum status find_cwd(const struct worker *worker, const char *tmp, char *out, size_t cap,
                            struct error *err)
{
    const char *workdir = worker->desired->launch->workdir;
    if (!workdir || !*workdir)
        (void)snprintf(out, cap, "%s", worker->code_dir ? worker->code_dir : tmp);
    else if (*workdir == '/')
        (void)snprintf(out, cap, "%s", workdir);
    else if (!worker->code_dir || !path_is_plain(workdir))
        return error_set(err, STATUS_INVALID, "workdir '%.100s' needs code that it is inside of",
                         workdir);
    else
        (void)snprintf(out, cap, "%s/%s", worker->code_dir, workdir);
    return STATUS_OK;
}

static const struct worker *rank_zero(const struct worker *worker)
{
    const Pb__WorkerKey *key = worker->desired->key;
    size_t at = 0;
    const struct worker *other;
    while ((other = map_next(worker->agent->workers, &at))) {
        const Pb__WorkerKey *its = other->desired->key;
        if (its->job == key->job && its->attempt == key->attempt &&
            its->incarnation == key->incarnation && its->rank == 0 &&
            strcmp(its->role, key->role) == 0)
            return other;
    }
    return NULL;
}

/* A line of /proc/net/tcp whose local port it is and whose state is LISTEN (0A). */
static bool port_listens(const char *table, uint32_t port)
{
    for (const char *line = table; line && *line; line = strchr(line, '\n')) {
        char local[64];
        unsigned state, found;
        line += *line == '\n';
        const char *colon;
        if (sscanf(line, " %*u: %63s %*s %x", local, &state) == 2 && state == 0x0a &&
            (colon = strrchr(local, ':')) && sscanf(colon + 1, "%x", &found) == 1 && found == port)
            return true;
    }
    return false;
}

static void start_delay_poll(struct worker *worker);

static void start_delay_timer(void *arg)
{
    struct worker *worker = arg;
    if (worker->state != PB__ACTUAL_WORKER__STATE__PREPARING)
        start_good(worker); /* given up: start_step sees it */
    else
        start_delay_poll(worker);
}

static void start_delay_done(void *arg, enum status st, const struct error *err,
                             struct files_batch *batch)
{
    struct worker *worker = worker_ref_take(arg);
    (void)st, (void)err;
    if (!worker)
        return;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->steps[i].bytes &&
            port_listens(batch->steps[i].bytes, worker->desired->launch->master_port)) {
            start_good(worker);
            return;
        }
    if (!worker->delay_timer)
        worker->delay_timer = loop_timer_create(worker->agent->loop, start_delay_timer, worker);
    loop_timer_set(worker->delay_timer, LISTEN_POLL_US);
}

static void start_delay_poll(struct worker *worker)
{
    const struct worker *first = rank_zero(worker);
    int64_t now = loop_now_us(worker->agent->loop);
    int64_t delay_us = (int64_t)worker->desired->launch->delay_ms * 1000;
    bool over = first ? first->started_us && now >= first->started_us + delay_us
                      : now >= worker->delay_until_us - LISTEN_WAIT_US + delay_us;
    if (over || now >= worker->delay_until_us || (first && worker_is_final(first))) {
        start_good(worker);
        return;
    }
    struct files_batch *batch = files_batch_create();
    if (first && first->started_us) {
        files_read(batch, "/proc/net/tcp", 0, PROC_TCP_BYTES)->missing_ok = true;
        files_read(batch, "/proc/net/tcp6", 0, PROC_TCP_BYTES)->missing_ok = true;
    }
    files_run(worker->agent->files, batch, start_delay_done, worker_ref_create(worker));
}

static void start_looked(void *arg, enum status st, const struct error *err,
                         struct files_batch *batch)
{
    struct worker *worker = worker_ref_take(arg);
    const struct files_step *step = &batch->steps[0];
    (void)st, (void)err;
    if (!worker)
        return;
    if (step->bytes && !lead_of_head(step->bytes, step->len))
        start_good(worker);
    else
        start_delay_timer(worker);
}

static void stage_delay(struct worker *worker)
{
    const Pb__Launch *launch = worker->desired->launch;
    enum lead lead = lead_of_command(launch->command, launch->n_command);
    char cwd[4096];
    worker->delay_until_us = loop_now_us(worker->agent->loop) + LISTEN_WAIT_US;
    if (worker->desired->key->rank == 0 || launch->delay_ms == 0 || lead == LEAD_NONE) {
        start_good(worker);
    } else if (lead == LEAD_NEEDED ||
               find_cwd(worker, worker->dir, cwd, sizeof(cwd), NULL) != STATUS_OK) {
        start_delay_poll(worker);
    } else {
        const char *program = launch->command[0];
        SCOPED_TEXT char *path =
            *program == '/' ? mem_strdup(program) : mem_printf("%s/%s", cwd, program);
        struct files_batch *batch = files_batch_create();
        files_read(batch, path, 0, LEAD_HEAD_BYTES)->missing_ok = true;
        files_run(worker->agent->files, batch, start_looked, worker_ref_create(worker));
    }
}

/* --- launch */

static enum status make_environment(const struct worker *worker, const char *tmp,
                                    struct environment **out, struct error *err)
{
    const struct agent *agent = worker->agent;
    struct environment_facts facts = {
        .key = worker->desired->key,
        .launch = worker->desired->launch,
        .tag = worker->tag,
        .node = agent->node,
        .dir = worker->dir,
        .tmp_dir = tmp,
        .user = worker->user ? worker->user->name : NULL,
        .home = worker->user               ? worker->user->home
                : agent->options.inherited ? agent->options.inherited("HOME")
                                           : NULL,
        .resume_dir = worker->resume_dir,
        .resume_shm = worker->resume_shm,
        .attempt_dir = worker->attempt_dir,
        .python_path = agent->config->python_path,
        .start_us = worker->start_us,
        .pass_env = &agent->config->pass_env,
        .worker_env = &agent->config->worker_env,
        .inherited = agent->options.inherited,
    };
    return environment_create(&facts, out, err);
}

static void fill_cpus(const struct worker *worker, struct launcher_request *request)
{
    const Pb__Launch *launch = worker->desired->launch;
    bool cpu = !launch->resources || !launch->resources->device ||
               strcmp(launch->resources->device, "cpu") == 0;
    if (!worker->agent->config->bind_cpus)
        return;
    request->cpus = cpu ? launch->devices : launch->cpus;
    request->cpus_count = cpu ? launch->n_devices : launch->n_cpus;
}

static enum status launch(struct worker *worker, struct error *err)
{
    const Pb__Launch *wanted = worker->desired->launch;
    struct launcher *launcher = worker->agent->options.launcher;
    SCOPED(environment_destroy) struct environment *environment = NULL;
    SCOPED_TEXT char *tmp = mem_printf("%s/tmp", worker->dir);
    char cwd[4096];
    if (wanted->n_command == 0 || !*wanted->command[0])
        return error_set(err, STATUS_INVALID, "the role has no command");
    enum status st = find_cwd(worker, tmp, cwd, sizeof(cwd), err);
    if (st == STATUS_OK)
        st = make_environment(worker, tmp, &environment, err);
    if (st != STATUS_OK)
        return st;
    const char **argv = mem_array(wanted->n_command + 1, sizeof(*argv));
    memcpy(argv, wanted->command, wanted->n_command * sizeof(*argv));
    struct launcher_request request = {
        .dir = worker->dir,
        .argv = argv,
        .env = environment_list(environment),
        .cwd = cwd,
        .user = worker->user ? worker->user->name : NULL,
        .umask = worker->agent->config->worker_umask,
        .memory_mib = wanted->resources ? wanted->resources->memory_mib : 0,
        .tag = worker->tag,
    };
    fill_cpus(worker, &request);
    worker->proc = launcher->ops->start(launcher, &request, worker_launcher_fn(), worker);
    mem_free(argv);
    return STATUS_OK;
}

static void stage_launch(struct worker *worker)
{
    struct error err = {STATUS_OK, ""};
    enum status st = launch(worker, &err);
    worker->holds &= ~(unsigned)WORKER_HOLD_START;
    if (st != STATUS_OK)
        start_step(worker, st, EXIT_CAUSE_LAUNCH, err.text);
}

static void (*const stages[])(struct worker *worker) = {
    stage_user, stage_code, stage_resume, stage_dir, stage_sock, stage_delay, stage_launch,
};

static void start_next(struct worker *worker)
{
    worker->holds |= WORKER_HOLD_START;
    stages[worker->stage](worker);
}

void worker_start_begin(struct worker *worker)
{
    worker->stage = 0;
    if (!worker->desired->launch) { /* the daemon sends it with the next connection */
        log_warn("worker.no_launch", log_str("worker", worker->tag));
        worker_blame(worker, EXIT_CAUSE_LAUNCH, "its launch is not known");
        worker_event(worker, WORKER_EV_FAILED);
        return;
    }
    start_next(worker);
}

const struct sock_events *worker_start_sock_events(void)
{
    return &worker_sock_events;
}
