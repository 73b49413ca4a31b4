/* host.c - a simulated machine and the seams of the agent on it. See host.h. */
#include "tests/sim/host.h"
#include "base/file.h"
#include "base/mem.h"
#include "proto/text/text_format.h"
#include "tests/sim/cluster.h"
#include "tests/sim/host_procs.h"
#include "tests/sim/net.h"
#include "worker/page.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct host_agent { /* one agent process */
    struct sim_process *process;
    struct agent *agent;
    struct agent_config config;
    struct seams *seams;
    struct uplink *uplink;
};
struct seams {        /* kept to the end of the run: late calls find them dead, not gone */
    struct list node; /* in cluster->seams */
    struct files files;
    struct vault_pool vaults;
    struct socks socks;
    struct inventory inventory;
    struct host *host;
    struct sim_process *process;
    struct list disk_jobs, vault_jobs, sockets, pages;
    Pb__Device *devices;
    bool dead;
};
#define SEAMS(member, pointer) CONTAINER_OF(pointer, struct seams, member)

/* --- files: the steps of files_disk.c on a real directory, a little later */
struct disk_job {
    struct list node;
    struct seams *seams;
    struct files_batch *batch;
    files_done done;
    void *arg;
};
struct mapped {
    struct list node;
    struct page *page;
};

static void disk_job_destroy(struct disk_job *job)
{
    list_remove(&job->node);
    files_batch_destroy(job->batch);
    mem_free(job);
}

static void keep_pages(struct seams *seams, const struct files_batch *batch)
{
    for (size_t i = 0; i < batch->ran; i++)
        if (batch->steps[i].kind == FILES_PAGE && batch->steps[i].page) {
            struct mapped *mapped = NEW(struct mapped);
            mapped->page = batch->steps[i].page;
            list_add_last(&seams->pages, &mapped->node);
        }
}

/* The kernel's files are those of the simulated machine, which has none: what the real one says
 * would differ from run to run. */
static void hide_kernel(const struct host *host, struct files_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct files_step *step = &batch->steps[i];
        if (strncmp(step->path, "/proc/", 6) != 0)
            continue;
        char *path = mem_printf("%s%s", host->dir, step->path);
        mem_free(step->path);
        step->path = path;
    }
}

static void disk_job_run(void *arg)
{
    struct disk_job *job = arg;
    struct error err = {0};

    hide_kernel(job->seams->host, job->batch);
    enum status st = files_disk_run(job->batch, &err);

    keep_pages(job->seams, job->batch);
    if (job->done)
        job->done(job->arg, st, st == STATUS_OK ? NULL : &err, job->batch);
    disk_job_destroy(job);
}

static void files_run_(struct files *files, struct files_batch *batch_take, files_done done,
                       void *arg)
{
    struct seams *seams = SEAMS(files, files);
    struct sim *sim = seams->host->sim;
    struct disk_job *job = NEW(struct disk_job);
    int64_t delay = sim_between(sim, 20, 400);

    if (!seams->host->cluster->calm && sim_chance(sim, 5))
        delay += sim_between(sim, 10000, 500000); /* the disk is busy */
    *job = (struct disk_job){.seams = seams, .batch = batch_take, .done = done, .arg = arg};
    list_add_last(&seams->disk_jobs, &job->node);
    sim_after(sim, seams->process, delay, disk_job_run, job);
}

static void files_unmap_(struct files *files, struct page *page)
{
    LIST_EACH(&SEAMS(files, files)->pages, item)
    {
        struct mapped *mapped = LIST_ITEM(item, struct mapped, node);
        if (mapped->page != page)
            continue;
        list_remove(&mapped->node);
        mem_free(mapped);
        munmap(page, PAGE_BYTES);
        return;
    }
}

static void files_destroy_(struct files *files)
{
    SEAMS(files, files)->dead = true;
}
static const struct files_ops files_ops = {files_run_, files_unmap_, files_destroy_};

/* --- vaults: checkpoint/vault.h on a directory that all hosts share */
struct vault_run {
    struct list node;
    struct vault_job *job;
    vault_pool_done done;
    void *arg;
};

static void vault_run_destroy(struct vault_run *run)
{
    list_remove(&run->node);
    vault_job_destroy(run->job);
    mem_free(run);
}

static void vault_run_now(void *arg)
{
    struct vault_run *run = arg;
    struct error err = {0};
    enum status st = vault_job_run(run->job, &err);

    run->done(run->arg, st, st == STATUS_OK ? NULL : &err, run->job);
    vault_run_destroy(run);
}

static void vaults_run(struct vault_pool *pool, struct vault_job *job_take, vault_pool_done done,
                       void *arg)
{
    struct seams *seams = SEAMS(vaults, pool);
    struct vault_run *run = NEW(struct vault_run);

    run->job = job_take;
    run->done = done;
    run->arg = arg;
    list_add_last(&seams->vault_jobs, &run->node);
    sim_after(seams->host->sim, seams->process, sim_between(seams->host->sim, 200, 20000),
              vault_run_now, run);
}

static void vaults_destroy(struct vault_pool *pool)
{
    (void)pool;
}
static const struct vault_pool_ops vaults_ops = {vaults_run, vaults_destroy};

/* --- control sockets */
struct host_sock {
    struct sock sock; /* first */
    struct list node;
    struct seams *seams;
    char *path;
    const struct sock_events *events;
    void *arg;
    bool closed;
};
struct sock_ask {     /* one request on its way; kept until answered or the end */
    struct list node; /* in asks */
    struct host_sock *sock;
    Pb__WorkerAsk *ask;
    void (*answer)(void *arg, const Pb__WorkerAnswer *answer);
    void *arg;
    struct host_proc *proc;
};

static void sock_opened(void *arg)
{
    struct host_sock *sock = arg;

    if (!sock->closed)
        sock->events->opened(sock->arg, STATUS_OK, NULL);
}

static const struct sock_ops sock_ops;

static struct sock *sock_open(struct socks *socks, const char *path, int64_t uid, int64_t gid,
                              const struct sock_events *events, void *arg)
{
    struct seams *seams = SEAMS(socks, socks);
    struct host_sock *sock = NEW(struct host_sock);

    (void)uid;
    (void)gid;
    sock->sock.ops = &sock_ops;
    sock->seams = seams;
    sock->path = mem_strdup(path);
    sock->events = events;
    sock->arg = arg;
    list_add_last(&seams->sockets, &sock->node);
    sim_after(seams->host->sim, seams->process, 50, sock_opened, sock);
    return &sock->sock;
}

static void sock_answer(struct sock *base, uint64_t connection, const Pb__WorkerAnswer *answer)
{
    struct sock_ask *ask = (struct sock_ask *)(uintptr_t)connection;

    (void)base;
    if (!ask->answer) /* answered before */
        return;
    void (*fn)(void *, const Pb__WorkerAnswer *) = ask->answer;
    ask->answer = NULL;
    if (!ask->proc->exited)
        fn(ask->arg, answer);
}

static void sock_close(struct sock *base)
{
    ((struct host_sock *)base)->closed = true;
}
static void socks_destroy(struct socks *socks)
{
    (void)socks;
}
static const struct sock_ops sock_ops = {sock_open, sock_answer, sock_close, socks_destroy};

static void ask_arrives(void *arg)
{
    struct sock_ask *ask = arg;

    if (!ask->sock->closed)
        ask->sock->events->ask(ask->sock->arg, (uint64_t)(uintptr_t)ask, ask->ask);
}

bool host_ask(struct host_proc *proc, const Pb__WorkerAsk *ask,
              void (*answer)(void *arg, const Pb__WorkerAnswer *answer), void *arg)
{
    struct host *host = proc->host;
    char path[700];

    if (!host->agent)
        return false;
    snprintf(path, sizeof(path), "%s/sock", proc->dir);
    LIST_EACH(&host->agent->seams->sockets, item)
    {
        struct host_sock *sock = LIST_ITEM(item, struct host_sock, node);
        if (sock->closed || strcmp(sock->path, path) != 0)
            continue;
        struct sock_ask *one = NEW(struct sock_ask);
        one->sock = sock;
        one->ask = (Pb__WorkerAsk *)message_copy(&ask->base);
        one->answer = answer;
        one->arg = arg;
        one->proc = proc;
        list_add_last(&host->cluster->asks, &one->node);
        sim_after(host->sim, host->agent->process, sim_between(host->sim, 20, 200), ask_arrives,
                  one);
        return true;
    }
    return false;
}

/* --- devices: CPU slots, always healthy and empty when their worker is gone */
static bool inventory_ready(struct inventory *inventory)
{
    (void)inventory;
    return true;
}

static size_t inventory_list(struct inventory *inventory, const Pb__Device **out, size_t max)
{
    struct seams *seams = SEAMS(inventory, inventory);

    for (size_t i = 0; i < seams->host->slots && i < max; i++)
        out[i] = &seams->devices[i];
    return seams->host->slots;
}

struct proof {
    void (*done)(void *arg, bool empty, const char *text);
    void *arg;
};

static void proof_done(void *arg)
{
    struct proof proof = *(struct proof *)arg;

    mem_free(arg);
    proof.done(proof.arg, true, "");
}

static void inventory_prove(struct inventory *inventory, const char *kind, const uint32_t *indices,
                            size_t count, void (*done)(void *arg, bool empty, const char *text),
                            void *arg)
{
    struct seams *seams = SEAMS(inventory, inventory);
    struct proof *proof = NEW(struct proof);

    (void)kind;
    (void)indices;
    (void)count;
    proof->done = done;
    proof->arg = arg;
    sim_after_owned(seams->host->sim, seams->process, 100, proof_done, proof);
}

static void inventory_destroy(struct inventory *inventory)
{
    (void)inventory;
}
static const struct inventory_ops inventory_ops = {inventory_ready, inventory_list, inventory_prove,
                                                   inventory_destroy};

/* --- the set */
static struct seams *seams_create(struct host *host, struct sim_process *process)
{
    struct seams *seams = NEW(struct seams);

    seams->files.ops = &files_ops;
    seams->vaults.ops = &vaults_ops;
    seams->socks.ops = (const void *)&sock_ops;
    seams->inventory.ops = &inventory_ops;
    seams->host = host;
    seams->process = process;
    list_init(&seams->disk_jobs);
    list_init(&seams->vault_jobs);
    list_init(&seams->sockets);
    list_init(&seams->pages);
    seams->devices = mem_array(host->slots + 1, sizeof(Pb__Device));
    for (uint32_t i = 0; i < host->slots; i++) {
        pb__device__init(&seams->devices[i]);
        seams->devices[i].kind = (char *)"cpu";
        seams->devices[i].has_index = seams->devices[i].has_health = true;
        seams->devices[i].index = i;
        seams->devices[i].health = PB__DEVICE__HEALTH__HEALTHY;
    }
    list_add_last(&host->cluster->seams, &seams->node);
    return seams;
}

/* What the dead agent had under way. */
static void seams_drop(struct seams *seams)
{
    while (!list_is_empty(&seams->disk_jobs))
        disk_job_destroy(LIST_ITEM(seams->disk_jobs.next, struct disk_job, node));
    while (!list_is_empty(&seams->vault_jobs))
        vault_run_destroy(LIST_ITEM(seams->vault_jobs.next, struct vault_run, node));
    for (struct list *item; (item = list_take_first(&seams->pages));) {
        struct mapped *mapped = LIST_ITEM(item, struct mapped, node);
        munmap(mapped->page, PAGE_BYTES);
        mem_free(mapped);
    }
    LIST_EACH(&seams->sockets, item)
    {
        LIST_ITEM(item, struct host_sock, node)->closed = true;
    }
}

void host_fini_seams(struct cluster *cluster)
{
    for (struct list *item; (item = list_take_first(&cluster->asks));) {
        struct sock_ask *ask = LIST_ITEM(item, struct sock_ask, node);
        pb__worker_ask__free_unpacked(ask->ask, NULL);
        mem_free(ask);
    }
    for (struct list *item; (item = list_take_first(&cluster->seams));) {
        struct seams *seams = LIST_ITEM(item, struct seams, node);
        for (struct list *s; (s = list_take_first(&seams->sockets));) {
            struct host_sock *sock = LIST_ITEM(s, struct host_sock, node);
            mem_free(sock->path);
            mem_free(sock);
        }
        mem_free(seams->devices);
        mem_free(seams);
    }
}

/* --- agents */
static void agent_failed(void *arg, const struct error *err)
{
    struct host *host = arg;

    sim_fail(host->sim, "agent of %s cannot start: %s", host->name, err->text);
}

static void config_fill(struct host *host, struct agent_config *config)
{
    option_defaults(config_rows, config);
    mem_free(config->node);
    mem_free(config->state_dir);
    config->node = mem_strdup(host->name);
    config->state_dir = mem_printf("%s/state", host->dir);
    mem_free(config->slot_dir);
    config->slot_dir = mem_printf("%s/slots", host->dir);
    config->verify_mib_s = 1024;
    config->vault.items = mem_array(1, sizeof(char *));
    config->vault.items[0] = mem_printf("default=%s/vault:shared", host->cluster->root);
    config->vault.count = 1;
}

void host_agent_start(struct host *host)
{
    struct host_agent *self = NEW(struct host_agent);
    char name[64];

    snprintf(name, sizeof(name), "agent-%s.%u", host->name, (unsigned)++host->instances);
    self->process = sim_process_create(host->sim, name);
    self->seams = seams_create(host, self->process);
    config_fill(host, &self->config);
    host->agent = self;
    sim_trace(host->sim, "%s: started", name);
    struct agent_options options = {
        .loop = &self->process->loop,
        .files = &self->seams->files,
        .vaults = &self->seams->vaults,
        .socks = &self->seams->socks,
        .launcher = host_procs_launcher(host, self->process),
        .inventory = &self->seams->inventory,
        .uplink = net_uplink_create(host, self->process),
        .config = &self->config,
        .boot_id = "boot",
        .hostname = host->name,
        .address = "127.0.0.1",
        .memory_mib = 65536,
        .failed = agent_failed,
        .arg = host,
    };
    self->uplink = options.uplink;
    self->agent = agent_create(&options);
}

void host_agent_kill(struct host *host)
{
    struct host_agent *self = host->agent;

    if (!self)
        return;
    host->agent = NULL;
    sim_process_kill(self->process);
    self->uplink->ops->destroy(self->uplink);
    host_procs_drop(host);
    seams_drop(self->seams);
    agent_destroy(self->agent);
    option_fini(config_rows, &self->config);
    sim_process_destroy(self->process);
    self->seams->process = NULL;
    mem_free(self);
}

struct sim_process *host_process(const struct host *host)
{
    return host->agent ? host->agent->process : NULL;
}

struct agent *host_agent(const struct host *host)
{
    return host->agent ? host->agent->agent : NULL;
}

struct host *host_create(struct cluster *cluster, const char *name, uint32_t slots,
                         const char *root)
{
    struct host *host = NEW(struct host);
    char path[600];
    struct error err;

    host->cluster = cluster;
    host->sim = cluster->sim;
    host->slots = slots;
    snprintf(host->name, sizeof(host->name), "%s", name);
    snprintf(host->dir, sizeof(host->dir), "%s/%s", root, name);
    snprintf(path, sizeof(path), "%s/state", host->dir);
    if (file_make_dirs(path, 0700, &err) != STATUS_OK)
        sim_fail(cluster->sim, "host %s: %s", name, err.text);
    list_init(&host->procs);
    return host;
}

void host_destroy(struct host *host)
{
    host_agent_kill(host);
    host_procs_fini(host);
    mem_free(host);
}
