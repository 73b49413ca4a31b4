/* rondod.c - see rondod.h. */
#include "daemon/rondod.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/cluster.h"
#include "daemon/core.h"
#include "daemon/dev_agents.h"
#include "daemon/dev_dir.h"
#include "daemon/listener.h"
#include "daemon/reader.h"
#include "daemon/serve.h"
#include "daemon/status.h"
#include "daemon/store_pg.h"
#include "rpc/server.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define RONDOD_FAILED   1
#define RONDOD_FENCED   3
#define RONDOD_AGAIN_US 1000000 /* signals closer to each other are one request */

struct rondod {
    const struct config *config;
    bool dev, stopping;
    int64_t stopping_us; /* when a signal asked for it */
    int code;
    struct loop *loop;
    uv_signal_t term, interrupt;
    struct dev_dir *dir;
    struct cluster *cluster;
    char *conninfo; /* as shown to people; owned */
    char *listen;   /* what we ask for; owned */
    struct store *store;
    struct core *core;
    struct reader *reader;
    struct serve *serve;
    struct status_server *status;
    struct rpc_server *server;
    struct dev_agents *agents;
    char *address, *http; /* host:port where we really are */
};

static void rondod_stop(struct rondod *d, int code);

static void rondod_fail(struct rondod *d, const struct error *err)
{
    fprintf(stderr, "rondod: %s\n", err->text);
    log_error("rondod.failed", log_err(err));
    rondod_stop(d, RONDOD_FAILED);
}

/* --- stopping: in the other order; the database last */

static void rondod_stopped(void *arg)
{
    struct rondod *d = arg;

    loop_uv_stop(d->loop);
}

static void rondod_agents_stopped(void *arg)
{
    struct rondod *d = arg;

    dev_agents_destroy(d->agents);
    d->agents = NULL;
    if (d->cluster)
        cluster_stop(d->cluster, rondod_stopped, d);
    else
        loop_uv_stop(d->loop);
}

/* Deferred: destroying the store and the server is not allowed inside their callbacks. */
static void rondod_take_apart(void *arg)
{
    struct rondod *d = arg;

    rpc_server_destroy(d->server, d->config->stop_ms);
    status_server_destroy(d->status);
    if (d->reader)
        reader_shut(d->reader);
    core_destroy(d->core);
    if (d->store)
        d->store->ops->destroy(d->store);
    d->server = NULL;
    d->status = NULL;
    d->core = NULL;
    d->store = NULL;
    if (d->agents)
        dev_agents_stop(d->agents, rondod_agents_stopped, d);
    else
        rondod_agents_stopped(d);
}

static void rondod_stop(struct rondod *d, int code)
{
    if (d->stopping)
        return;
    d->stopping = true;
    d->code = code;
    log_info("rondod.stop", log_int("code", code));
    loop_defer(d->loop, rondod_take_apart, d);
}

static void rondod_signal(uv_signal_t *handle, int number)
{
    struct rondod *d = handle->data;

    log_info("rondod.signal", log_int("signal", number));
    if (!d->stopping)
        d->stopping_us = loop_now_us(d->loop);
    /* Asked again: at once; agents and database are found again. One request may come as two
     * signals: `timeout` sends it to the process and to its group. */
    if (d->stopping && loop_now_us(d->loop) - d->stopping_us > RONDOD_AGAIN_US)
        loop_uv_stop(d->loop);
    rondod_stop(d, 0);
}

static void rondod_fenced(void *arg)
{
    struct rondod *d = arg;

    fprintf(stderr, "rondod: a newer daemon leads this cluster: this one stops\n");
    rondod_stop(d, RONDOD_FENCED);
}

/* --- starting, last step: serve */

static void rondod_counts(void *arg, struct status_counts *out)
{
    struct rondod *d = arg;
    struct serve_counts counts = {0};

    if (!d->server)
        return;
    rpc_server_counts(d->server, &out->rpc_calls, &out->rpc_refused, &out->rpc_open);
    serve_counts(d->serve, &counts);
    out->watches = counts.watches;
    out->log_relays = counts.log_relays;
    out->uploads = counts.uploads;
    out->code_fetches = counts.code_fetches;
    out->agents = counts.agents;
    out->bulk_streams = counts.bulk_streams;
}

static void rondod_print(const struct rondod *d)
{
    struct core_health health = {0};

    core_health(d->core, &health);
    printf("rondod %s  cluster %s  term %llu\n", RONDO_VERSION,
           health.cluster ? health.cluster : "", (unsigned long long)health.term);
    printf("  gRPC       %s (mTLS)\n", d->address);
    if (d->http)
        printf("  status     http%s://%s/\n",
               d->config->status_cert && *d->config->status_cert ? "s" : "", d->http);
    if (d->dir) {
        printf("  directory  %s\n", d->dir->path);
        printf("  database   psql \"%s\"\n", d->conninfo);
        printf("  commands   rondoctl status --context %s/ctl\n", d->dir->path);
        if (d->config->agents)
            printf("  agents     n1..n%u, logs in %s/n*/agent.log\n", d->config->agents,
                   d->dir->agents);
        else
            printf("  agents     none: rondod dev --agents N, or rondod ca issue --ca %s --kind "
                   "agent --name n1 --out %s/n1\n",
                   d->dir->ca, d->dir->agents);
    }
    printf("ready\n");
    fflush(stdout);
}

static char *rondod_join(const char *address, uint16_t port)
{
    const char *colon = strrchr(address, ':');

    return mem_printf("%.*s:%u", (int)(colon - address), address, port);
}

static enum status rondod_open_server(struct rondod *d, struct error *err)
{
    SCOPED_TEXT char *cert = d->dir ? mem_printf("%s/daemon.pem", d->dir->daemon) : NULL;
    SCOPED_TEXT char *key = d->dir ? mem_printf("%s/daemon.key", d->dir->daemon) : NULL;
    SCOPED_TEXT char *ca = d->dir ? mem_printf("%s/ca.pem", d->dir->ca) : NULL;
    SCOPED_TEXT char *crl = d->dir ? mem_printf("%s/crl", d->dir->ca) : NULL;
    const struct config *config = d->config;
    size_t count;
    const struct rpc_service *services = serve_services(d->serve, &count);
    struct rpc_server_options options = {
        .listen = d->listen,
        .cert = d->dir ? cert : config->cert,
        .key = d->dir ? key : config->key,
        .ca = d->dir ? ca : config->ca,
        .crl_dir = d->dir                                ? crl
                   : config->crl_dir && *config->crl_dir ? config->crl_dir
                                                         : NULL,
    };

    enum status st = rpc_server_create(d->loop, &options, services, count, &d->server, err);
    if (st == STATUS_OK)
        d->address = rondod_join(d->listen, rpc_server_port(d->server));
    return st;
}

static enum status rondod_open_agents(struct rondod *d, struct error *err)
{
    const struct dev_agents_options options = {
        .loop = d->loop, .dir = d->dir, .config = d->config, .server = d->address};
    enum status st = dev_dir_announce(d->dir, d->address, d->http, err);

    if (st == STATUS_OK && d->config->agents > 0)
        st = dev_agents_start(&options, &d->agents, err);
    return st;
}

static void rondod_leads(void *arg, enum status st, const struct error *err)
{
    struct rondod *d = arg;
    struct error own = {0};

    if (d->stopping)
        return;
    if (st != STATUS_OK) {
        rondod_fail(d, err);
        return;
    }
    st = rondod_open_server(d, &own);
    if (st == STATUS_OK && d->dir)
        st = rondod_open_agents(d, &own);
    if (st != STATUS_OK)
        rondod_fail(d, &own);
    else
        rondod_print(d);
}

/* --- starting: the database is there */

static enum status rondod_open_store(struct rondod *d, const char *conninfo, struct error *err)
{
    char host[256] = "";
    SCOPED_TEXT char *holder = NULL;

    if (gethostname(host, sizeof(host) - 1) != 0)
        snprintf(host, sizeof(host), "unknown");
    holder = mem_printf("%s:%s", host, d->dir ? d->dir->path : d->config->listen);
    struct store_pg_options options = {.loop = d->loop,
                                       .conninfo = conninfo,
                                       .holder = holder,
                                       .keep = {.points_days = d->config->points_keep_days,
                                                .events_days = d->config->events_keep_days,
                                                .events_count = d->config->events_keep_max,
                                                .code_days = d->config->code_keep_days}};
    enum status st = store_pg_create(&options, &d->store, err);
    return st == STATUS_OK ? st : error_wrap(err, "database");
}

static void rondod_open_core(struct rondod *d)
{
    const struct config *config = d->config;

    d->core = core_create(&(struct core_options){
        .loop = d->loop,
        .store = d->store,
        .lease_ms = config->lease_ms,
        .heartbeat_ms = config->heartbeat_ms,
        .default_vault = config->default_vault,
        .ended_max = config->ended_max,
        .queued_max = config->queued_max,
        .on_fenced = rondod_fenced,
        .on_fenced_arg = d,
    });
    d->reader = reader_create(&(struct reader_options){
        .loop = d->loop, .core = d->core, .store = d->store, .pass_ms_max = config->pass_ms_max});
    d->serve = serve_create(&(struct serve_options){
        .loop = d->loop, .core = d->core, .store = d->store, .reader = d->reader});
}

static enum status rondod_open_status(struct rondod *d, struct error *err)
{
    const struct config *config = d->config;
    bool tls = config->status_cert && *config->status_cert;

    if (!config->status_listen || !*config->status_listen)
        return STATUS_OK;
    enum status st =
        status_server_create(&(struct status_options){.loop = d->loop,
                                                      .core = d->core,
                                                      .reader = d->reader,
                                                      .listen = config->status_listen,
                                                      .cert = tls ? config->status_cert : NULL,
                                                      .key = tls ? config->status_key : NULL,
                                                      .counts = rondod_counts,
                                                      .counts_arg = d},
                             &d->status, err);
    if (st == STATUS_OK)
        d->http = rondod_join(config->status_listen, status_server_port(d->status));
    return st == STATUS_OK
               ? st
               : error_wrap(err, "status endpoint (--status-listen chooses another address)");
}

static void rondod_database(void *arg, enum status st, const struct error *err,
                            const char *conninfo)
{
    struct rondod *d = arg;
    struct error own = {0};

    if (d->stopping)
        return;
    if (st != STATUS_OK) {
        rondod_fail(d, err);
        return;
    }
    d->conninfo = mem_strdup(conninfo);
    st = rondod_open_store(d, conninfo, &own);
    if (st == STATUS_OK) {
        rondod_open_core(d);
        st = rondod_open_status(d, &own);
    }
    if (st != STATUS_OK) {
        rondod_fail(d, &own);
        return;
    }
    core_start(d->core, rondod_leads, d);
}

static void rondod_cluster_state(void *arg, bool up, const char *text)
{
    (void)arg;
    if (up)
        log_info("database.up", log_str("text", text));
    else
        log_warn("database.down", log_str("text", text));
}

/* --- starting, first step */

/* A taken port is told at once, not after the database has started. With port 0 the port of the
 * last run is tried first, so that agents and clients of before find us again. */
static enum status rondod_choose_port(struct rondod *d, struct error *err)
{
    SCOPED_TEXT char *path = NULL;
    SCOPED_TEXT char *before = NULL;
    size_t len = strlen(d->config->listen), before_len;
    uint16_t port;
    int fd;

    d->listen = mem_strdup(d->config->listen);
    if (d->dir && len > 2 && strcmp(d->config->listen + len - 2, ":0") == 0) {
        path = mem_printf("%s/server", d->dir->ctl);
        if (file_read(path, 512, &before, &before_len, NULL) == STATUS_OK) {
            before[strcspn(before, "\n")] = '\0';
            if (strncmp(before, d->config->listen, len - 1) == 0 &&
                listener_open(before, &fd, &port, NULL) == STATUS_OK) {
                close(fd);
                mem_free(d->listen);
                d->listen = TAKE(before);
                return STATUS_OK;
            }
        }
    }
    enum status st = listener_open(d->listen, &fd, &port, err);
    if (st != STATUS_OK)
        return error_wrap(err, "gRPC (--listen chooses another address)");
    close(fd);
    return STATUS_OK;
}

static void rondod_begin(struct rondod *d)
{
    const struct config *config = d->config;
    struct error err = {0};
    enum status st = STATUS_OK;

    if (d->dev)
        st = dev_dir_open(config->dir, &config->hosts, &d->dir, &err);
    if (st == STATUS_OK)
        st = rondod_choose_port(d, &err);
    if (st != STATUS_OK) {
        rondod_fail(d, &err);
        return;
    }
    if (!d->dev) {
        rondod_database(d, STATUS_OK, NULL, config->database);
        return;
    }
    d->cluster = cluster_start(
        &(struct cluster_options){
            .loop = d->loop,
            .dir = d->dir->postgres,
            .user = config->postgres_user,
            .bin_dir = config->postgres_bin && *config->postgres_bin ? config->postgres_bin : NULL,
            .on_state = rondod_cluster_state,
        },
        rondod_database, d);
}

static void rondod_watch_signals(struct rondod *d)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    sigaction(SIGPIPE, &ignore, NULL);
    uv_signal_init(loop_uv_handle(d->loop), &d->term);
    uv_signal_init(loop_uv_handle(d->loop), &d->interrupt);
    d->term.data = d->interrupt.data = d;
    uv_signal_start(&d->term, rondod_signal, SIGTERM);
    uv_signal_start(&d->interrupt, rondod_signal, SIGINT);
}

int rondod_run(const struct config *config, bool dev)
{
    struct rondod d = {.config = config, .dev = dev};

    d.loop = loop_uv_create();
    rondod_watch_signals(&d);
    rondod_begin(&d);
    loop_uv_run(d.loop);
    cluster_destroy(d.cluster);
    reader_destroy(d.reader);
    serve_destroy(d.serve);
    uv_close((uv_handle_t *)(void *)&d.term, NULL);
    uv_close((uv_handle_t *)(void *)&d.interrupt, NULL);
    loop_uv_destroy(d.loop);
    dev_dir_close(d.dir);
    mem_free(d.conninfo);
    mem_free(d.listen);
    mem_free(d.address);
    mem_free(d.http);
    log_info("rondod.stopped", log_int("code", d.code));
    return d.code;
}
