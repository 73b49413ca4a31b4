/* cluster.c - a whole simulated cluster from one seed. See cluster.h. */
#include "tests/sim/cluster.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/vault.h"
#include "daemon/job_fsm.h"
#include "proto/text/job_check.h"
#include "proto/text/text_format.h"
#include "tests/sim/host_procs.h"
#include "tests/sim/launched.h"
#include "tests/sim/net.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FAULTS_FOR_US 20000000 /* then everything must settle */
#define SETTLE_US     400000000

/* --- what workers tell */
void cluster_reported(struct cluster *cluster, const char *key)
{
    map_put_text(cluster->reported, key, cluster);
}

void cluster_said(struct cluster *cluster, const struct cluster_answer *answer)
{
    char key[120];

    snprintf(key, sizeof(key), "%" PRId64 ".%u.%u.%d.%" PRId64, answer->job, answer->attempt,
             answer->incarnation, answer->kind, answer->step);
    struct cluster_answer *known = map_get_text(cluster->answers, key);
    if (!known) {
        known = NEW(struct cluster_answer);
        *known = *answer;
        map_put_text(cluster->answers, key, known);
    } else if (known->yes != answer->yes) {
        sim_fail(cluster->sim, "job %" PRId64 " attempt %u: ranks disagree on %s at step %" PRId64,
                 answer->job, answer->attempt, answer->kind == 1 ? "save" : "stop", answer->step);
    }
}

/* --- the daemon */
static void daemon_start(void *arg);

static void daemon_started(void *arg, enum status st, const struct error *err)
{
    struct cluster *cluster = arg;

    (void)err;
    cluster->core_started = st == STATUS_OK;
}

static void daemon_fenced(void *arg)
{
    struct cluster *cluster = arg;

    sim_trace(cluster->sim, "rondod: fenced");
}

static void daemon_start(void *arg)
{
    struct cluster *cluster = arg;

    if (cluster->core)
        return;
    cluster->daemon_process = sim_process_create(cluster->sim, "rondod");
    cluster->store = sim_store_create(cluster->db, cluster->daemon_process);
    struct core_options options = {
        .loop = &cluster->daemon_process->loop,
        .store = cluster->store,
        .lease_ms = 5000,
        .heartbeat_ms = 1000,
        .ended_max = 1000,
        .queued_max = 1000,
        .on_fenced = daemon_fenced,
        .on_fenced_arg = cluster,
    };
    sim_trace(cluster->sim, "rondod: started");
    cluster->core_started = false;
    cluster->core = core_create(&options);
    core_start(cluster->core, daemon_started, cluster);
}

/* In a cluster that is lonely mostly for longer than a share of the lease. */
static int64_t absence(struct cluster *cluster)
{
    bool longer = sim_chance(cluster->sim, cluster->lonely ? 800 : 100);

    return sim_between(cluster->sim, 10000, longer ? 12000000 : 3000000);
}

static void daemon_kill(struct cluster *cluster)
{
    struct core *core = cluster->core;

    if (!core)
        return;
    sim_process_kill(cluster->daemon_process);
    cluster->core = NULL;
    net_daemon_died(cluster);
    core_destroy(core);
    sim_store_drop(cluster->store);
    sim_process_destroy(cluster->daemon_process);
    cluster->daemon_process = NULL;
    cluster->core_started = false;
}

/* --- users: submit, retry with the same id until answered; sometimes cancel or hold */
struct user_call {
    struct cluster *cluster;
    struct cluster_job *job;
};

static void submit(void *arg);

static void submit_answered(void *arg, enum status st, const struct error *err,
                            const ProtobufCMessage *reply)
{
    struct user_call *call = arg;
    struct cluster_job *job = call->job;

    (void)err;
    if (st == STATUS_OK) {
        int64_t id = ((const Pb__SubmitReply *)reply)->job;
        if (job->acknowledged && job->id != id)
            sim_fail(call->cluster->sim, "one request id made jobs %" PRId64 " and %" PRId64,
                     job->id, id);
        job->id = id;
        job->acknowledged = true;
        sim_trace(call->cluster->sim, "user: job %" PRId64 " acknowledged", id);
    }
    mem_free(call);
}

static Pb__JobSpec *make_spec(const struct cluster_job *job)
{
    Pb__JobSpec spec = PB__JOB_SPEC__INIT;
    Pb__Role role = PB__ROLE__INIT, *roles[] = {&role};
    Pb__StringPair steps = PB__STRING_PAIR__INIT, *env[] = {&steps};
    Pb__CheckpointPolicy policy = PB__CHECKPOINT_POLICY__INIT;
    Pb__Restart restart = PB__RESTART__INIT;
    char *command[] = {(char *)"train"};
    char value[24];

    snprintf(value, sizeof(value), "%" PRId64, job->steps);
    spec.name = (char *)"sim";
    spec.n_roles = 1;
    spec.roles = roles;
    role.name = (char *)"main";
    role.n_command = 1;
    role.command = command;
    role.has_workers = true;
    role.workers = job->workers;
    role.n_env = 1;
    role.env = env;
    steps.name = (char *)"STEPS";
    steps.value = value;
    spec.checkpoint = &policy;
    policy.has_every_steps = policy.has_every_s = true;
    policy.every_steps = (uint64_t)(job->steps % 3 == 0 ? 0 : 7);
    policy.every_s = (uint64_t)(job->steps % 3 == 0 ? 1 : 0);
    spec.restart = &restart;
    restart.has_budget = restart.has_backoff_ms = restart.has_backoff_ms_max = true;
    restart.budget = job->budget;
    restart.backoff_ms = 100;
    restart.backoff_ms_max = 2000;
    spec.has_grace_ms = true;
    spec.grace_ms = 3000;
    spec.has_grace_ms_max = true;
    spec.grace_ms_max = 6000;
    Pb__JobSpec *filled = (Pb__JobSpec *)message_copy(&spec.base);
    job_check_fill(filled);
    return filled;
}

static void submit(void *arg)
{
    struct user_call *call = arg;
    struct cluster *cluster = call->cluster;

    if (call->job->acknowledged) {
        mem_free(call);
        return;
    }
    sim_after_owned(cluster->sim, NULL, sim_between(cluster->sim, 200000, 2000000), submit,
                    mem_dup(call, sizeof(*call)));
    if (!cluster->core || !cluster->core_started) {
        mem_free(call);
        return;
    }
    Pb__SubmitRequest request = PB__SUBMIT_REQUEST__INIT;
    request.request_id = call->job->request_id;
    request.spec = make_spec(call->job);
    core_call(cluster->core, "user/sim", &request.base, submit_answered, call);
    protobuf_c_message_free_unpacked(&request.spec->base, NULL);
}

static void ignored(void *arg, enum status st, const struct error *err,
                    const ProtobufCMessage *reply)
{
    (void)arg;
    (void)st;
    (void)err;
    (void)reply;
}

static void cancelled(void *arg, enum status st, const struct error *err,
                      const ProtobufCMessage *reply)
{
    struct user_call *call = arg;

    (void)err;
    (void)reply;
    call->job->stays_cancelled |= st == STATUS_OK;
    mem_free(call);
}

static void cancel(struct cluster *cluster, struct cluster_job *job, char *id)
{
    Pb__CancelRequest request = PB__CANCEL_REQUEST__INIT;
    struct user_call *call = NEW(struct user_call);

    request.request_id = id;
    request.has_job = true;
    request.job = job->id;
    call->cluster = cluster;
    call->job = job;
    job->cancelled = true;
    sim_trace(cluster->sim, "user: cancels job %" PRId64, job->id);
    core_call(cluster->core, "user/sim", &request.base, cancelled, call);
}

static void meddle(struct cluster *cluster)
{
    struct cluster_job *job = &cluster->jobs[sim_below(cluster->sim, cluster->jobs_count)];
    Pb__HoldRequest request = PB__HOLD_REQUEST__INIT;
    char id[48];

    if (!job->acknowledged || !cluster->core || !cluster->core_started)
        return;
    snprintf(id, sizeof(id), "meddle-%" PRIu64, sim_random(cluster->sim));
    if (sim_chance(cluster->sim, 300)) {
        cancel(cluster, job, id);
        return;
    }
    request.request_id = id;
    request.has_job = request.has_release = true;
    request.job = job->id;
    request.release = sim_chance(cluster->sim, 600);
    sim_trace(cluster->sim, "user: %s job %" PRId64, request.release ? "releases" : "holds",
              job->id);
    core_call(cluster->core, "user/sim", &request.base, ignored, NULL);
}

/* --- faults */
static void agent_back(void *arg)
{
    struct host *host = arg;

    if (!host->agent)
        host_agent_start(host);
}

static void partition_heals(void *arg)
{
    struct host *host = arg;

    sim_trace(host->sim, "net: %s is reachable again", host->name);
    host->partitioned = false;
}

static void database_back(void *arg)
{
    sim_db_away(((struct cluster *)arg)->db, false);
}

static void fault(void *arg)
{
    struct cluster *cluster = arg;
    struct sim *sim = cluster->sim;
    struct host *host = cluster->hosts[sim_below(sim, cluster->hosts_count)];

    if (cluster->calm)
        return;
    sim_after(sim, NULL, sim_between(sim, 50000, 1500000), fault, cluster);
    switch (sim_below(sim, 7)) {
    case 0:
        daemon_kill(cluster);
        sim_after(sim, NULL, absence(cluster), daemon_start, cluster);
        break;
    case 1:
        host_agent_kill(host);
        sim_after(sim, NULL, sim_between(sim, 10000, 3000000), agent_back, host);
        break;
    case 2:
        sim_trace(sim, "net: %s is cut off", host->name);
        host->partitioned = true;
        net_break(host);
        sim_after(sim, NULL, sim_between(sim, 100000, 9000000), partition_heals, host);
        break;
    case 3:
        sim_db_away(cluster->db, true);
        sim_after(sim, NULL, sim_between(sim, 10000, 4000000), database_back, cluster);
        break;
    case 4:
        net_break(host);
        break;
    default:
        meddle(cluster);
        break;
    }
}

/* --- what must hold after each step */
static void check(void *arg)
{
    struct cluster *cluster = arg;

    for (size_t i = 0; i < cluster->jobs_count; i++) {
        struct cluster_job *job = &cluster->jobs[i];
        if (!job->acknowledged || job->submitted)
            continue;
        char key[24];
        snprintf(key, sizeof(key), "%" PRId64, job->id);
        ProtobufCMessage *row = sim_db_row(cluster->db, CHANGE_JOB, key);
        if (!row)
            sim_fail(cluster->sim, "job %" PRId64 " was acknowledged and is not in the database",
                     job->id);
        else
            protobuf_c_message_free_unpacked(row, NULL);
        job->submitted = true;
    }
}

/* --- the end: everything settles */
static void calm_down(struct cluster *cluster)
{
    sim_trace(cluster->sim, "---- faults stop");
    cluster->calm = true;
    sim_db_faults(cluster->db, 0);
    sim_db_away(cluster->db, false);
    daemon_start(cluster);
    for (size_t i = 0; i < cluster->hosts_count; i++) {
        cluster->hosts[i]->partitioned = false;
        agent_back(cluster->hosts[i]);
    }
}

static void release_held(struct cluster *cluster)
{
    for (size_t i = 0; i < cluster->jobs_count; i++) {
        struct cluster_job *job = &cluster->jobs[i];
        const Pb__Job *row =
            job->acknowledged && cluster->core_started ? core_job(cluster->core, job->id) : NULL;
        Pb__HoldRequest request = PB__HOLD_REQUEST__INIT;
        char id[48];
        if (!row || row->state != PB__JOB__STATE__HELD)
            continue;
        snprintf(id, sizeof(id), "release-%" PRIu64, sim_random(cluster->sim));
        request.request_id = id;
        request.has_job = request.has_release = request.release = true;
        request.job = job->id;
        core_call(cluster->core, "user/sim", &request.base, ignored, NULL);
    }
}

static bool settled(const struct cluster *cluster)
{
    if (!cluster->core_started)
        return false;
    for (size_t i = 0; i < cluster->jobs_count; i++) {
        const struct cluster_job *job = &cluster->jobs[i];
        const Pb__Job *row = job->acknowledged ? core_job(cluster->core, job->id) : NULL;
        if (!row || !job_fsm_ended(row->state))
            return false;
    }
    for (size_t i = 0; i < cluster->hosts_count; i++)
        if (host_procs_alive(cluster->hosts[i]))
            return false;
    return true;
}

static void describe_unsettled(struct cluster *cluster)
{
    for (size_t i = 0; i < cluster->jobs_count; i++) {
        const struct cluster_job *job = &cluster->jobs[i];
        const Pb__Job *row =
            job->acknowledged && cluster->core ? core_job(cluster->core, job->id) : NULL;
        sim_trace(cluster->sim, "job %" PRId64 ": %s, attempt %u, %s", job->id,
                  row ? enum_name(&pb__job__state__descriptor, (int)row->state) : "unknown",
                  row ? row->attempt : 0, row && row->reason ? row->reason->text : "");
    }
    for (size_t i = 0; i < cluster->hosts_count; i++)
        sim_trace(cluster->sim, "%s: %zu workers alive", cluster->hosts[i]->name,
                  host_procs_alive(cluster->hosts[i]));
}

static void check_checkpoint(void *arg, const ProtobufCMessage *message)
{
    struct cluster *cluster = arg;
    const Pb__Checkpoint *row = (const Pb__Checkpoint *)message;
    char vault[400];
    struct error err;

    if (row->state == PB__CHECKPOINT__STATE__DAMAGED)
        sim_fail(cluster->sim, "checkpoint %" PRId64 " is damaged: %s", row->id, row->reason);
    cluster->from_slots += row->has_committed_us && row->format == PB__CHECKPOINT__FORMAT__SHARDED;
    cluster->verified += row->state == PB__CHECKPOINT__STATE__VERIFIED;
    if (row->state != PB__CHECKPOINT__STATE__COMMITTED &&
        row->state != PB__CHECKPOINT__STATE__VERIFIED)
        return;
    snprintf(vault, sizeof(vault), "%s/vault", cluster->root);
    if (vault_verify(vault, row->path, row->manifest_digest, true, &err) != STATUS_OK)
        sim_fail(cluster->sim, "committed checkpoint %" PRId64 " is not whole: %s", row->id,
                 err.text);
}

static void check_end(struct cluster *cluster)
{
    size_t at = 0, lost = 0;
    uint32_t used, workers;
    struct core_health health;

    for (size_t i = 0; i < cluster->jobs_count; i++) {
        const Pb__Job *row = core_job(cluster->core, cluster->jobs[i].id);
        if (row->state == PB__JOB__STATE__FAILED && row->restarts_used < row->spec->restart->budget)
            sim_fail(cluster->sim, "job %" PRId64 " failed: %s", row->id, row->reason->text);
        if (row->state == PB__JOB__STATE__CANCELLED && !cluster->jobs[i].cancelled)
            sim_fail(cluster->sim, "job %" PRId64 " was cancelled by nobody", row->id);
        if (row->state != PB__JOB__STATE__CANCELLED && cluster->jobs[i].stays_cancelled)
            sim_fail(cluster->sim, "job %" PRId64 ": its cancel was acknowledged", row->id);
    }
    for (size_t i = 0; i < cluster->hosts_count; i++) {
        core_node_use(cluster->core, cluster->hosts[i]->name, &used, &workers);
        if (used || workers)
            sim_fail(cluster->sim, "%s: %u devices and %u workers are still counted",
                     cluster->hosts[i]->name, used, workers);
    }
    launched_check_end(cluster);
    core_health(cluster->core, &health);
    if (health.drifts)
        sim_fail(cluster->sim, "use differed from a recount on %" PRIu64 " nodes", health.drifts);
    sim_db_each(cluster->db, CHANGE_CHECKPOINT, check_checkpoint, cluster);
    sim_trace(cluster->sim,
              "slots filled %" PRIu64 ", checkpoints from slots %" PRIu64 ", verified %" PRIu64,
              cluster->filled, cluster->from_slots, cluster->verified);
    for (void *found; (found = map_next(cluster->reported, &at));)
        cluster->points++;
    lost = cluster->points - sim_db_points(cluster->db);
    if (lost)
        sim_fail(cluster->sim, "%zu of %" PRIu64 " points were written and never stored", lost,
                 cluster->points);
}

/* --- a run */
/* Without the directory of this run, so that two runs of a seed say the same. */
static void log_line(void *arg, const char *line)
{
    struct cluster *cluster = arg;
    const char *text = strchr(line, ' ');
    SCOPED_TEXT char *copy = mem_strdup(text ? text + 1 : line);
    size_t len = strlen(cluster->root);

    for (char *at = copy; (at = strstr(at, cluster->root));)
        memmove(at, at + len, strlen(at + len) + 1);
    sim_trace(cluster->sim, "  %s", copy);
}

static void cluster_init(struct cluster *cluster, uint64_t seed, const char *root)
{
    char name[32], path[300];
    struct error err;

    *cluster = (struct cluster){.sim = sim_create(seed)};
    snprintf(cluster->root, sizeof(cluster->root), "%s", root);
    list_init(&cluster->conns);
    list_init(&cluster->uplinks);
    list_init(&cluster->seams);
    list_init(&cluster->asks);
    list_init(&cluster->handles);
    list_init(&cluster->launchers);
    cluster->answers = map_create();
    cluster->reported = map_create();
    cluster->incarnations = map_create();
    cluster->db = sim_db_create(cluster->sim);
    log_set_sink(log_line, cluster);
    cluster->lonely = sim_chance(cluster->sim, 300);
    sim_db_faults(cluster->db, (uint32_t)sim_below(cluster->sim, 30));
    snprintf(path, sizeof(path), "%s/vault", root);
    if (file_make_dirs(path, 0700, &err) != STATUS_OK)
        sim_fail(cluster->sim, "%s", err.text);
    cluster->hosts_count = 1 + sim_below(cluster->sim, CLUSTER_HOSTS_MAX - 1);
    daemon_start(cluster);
    for (size_t i = 0; i < cluster->hosts_count; i++) {
        snprintf(name, sizeof(name), "h%zu", i + 1);
        cluster->hosts[i] =
            host_create(cluster, name, 1 + (uint32_t)sim_below(cluster->sim, 4), root);
        host_agent_start(cluster->hosts[i]);
    }
}

static void make_jobs(struct cluster *cluster)
{
    uint32_t slots = 0;

    for (size_t i = 0; i < cluster->hosts_count; i++)
        slots += cluster->hosts[i]->slots;
    cluster->jobs_count = 1 + sim_below(cluster->sim, CLUSTER_JOBS_MAX);
    for (size_t i = 0; i < cluster->jobs_count; i++) {
        struct cluster_job *job = &cluster->jobs[i];
        struct user_call *call = NEW(struct user_call);
        snprintf(job->request_id, sizeof(job->request_id), "job-%zu-%" PRIu64, i,
                 sim_random(cluster->sim));
        uint32_t most = cluster->lonely ? 3 : 6;
        job->workers = 1 + (uint32_t)sim_below(cluster->sim, slots < most ? slots : most);
        job->steps = sim_between(cluster->sim, 1, cluster->lonely ? 500 : 120);
        job->budget = sim_chance(cluster->sim, 300) ? (uint32_t)sim_below(cluster->sim, 8) : 1000;
        call->cluster = cluster;
        call->job = job;
        sim_after_owned(cluster->sim, NULL, sim_between(cluster->sim, 1000, 8000000), submit, call);
    }
}

static void cluster_fini(struct cluster *cluster)
{
    size_t at = 0;

    daemon_kill(cluster);
    for (size_t i = 0; i < cluster->hosts_count; i++)
        host_agent_kill(cluster->hosts[i]);
    for (size_t i = 0; i < cluster->hosts_count; i++)
        host_destroy(cluster->hosts[i]);
    net_fini(cluster);
    host_procs_fini_handles(cluster);
    host_fini_seams(cluster);
    for (struct cluster_answer *answer; (answer = map_next(cluster->answers, &at));)
        mem_free(answer);
    map_destroy(cluster->answers);
    map_destroy(cluster->reported);
    map_destroy(cluster->incarnations);
    sim_db_destroy(cluster->db);
    log_set_sink(NULL, NULL);
    sim_destroy(cluster->sim);
}

bool cluster_run(uint64_t seed, const char *root, bool verbose, uint64_t *hash)
{
    static struct cluster cluster;
    struct sim *sim;

    cluster_init(&cluster, seed, root);
    sim = cluster.sim;
    make_jobs(&cluster);
    sim_set_check(sim, check, &cluster);
    sim_after(sim, NULL, sim_between(sim, 500000, 3000000), fault, &cluster);
    sim_run_until(sim, FAULTS_FOR_US);
    calm_down(&cluster);
    while (!sim_failed(sim) && !settled(&cluster) && sim_now_us(sim) < FAULTS_FOR_US + SETTLE_US) {
        sim_run_until(sim, sim_now_us(sim) + 1000000);
        release_held(&cluster);
    }
    if (!sim_failed(sim) && !settled(&cluster)) {
        describe_unsettled(&cluster);
        sim_fail(sim, "nothing has settled within %d s", SETTLE_US / 1000000);
    }
    if (!sim_failed(sim)) {
        sim_run_until(sim, sim_now_us(sim) + 5000000);
        check_end(&cluster);
    }
    bool good = !sim_failed(sim);
    *hash = sim_hash(sim);
    if (!good || verbose)
        sim_print_trace(sim);
    cluster_fini(&cluster);
    return good;
}
