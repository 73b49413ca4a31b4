#include "daemon/cluster.h"
#include "base/child.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/cluster_dir.h"
#include "daemon/cluster_proc.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#define READY_POLL_US  20000
#define LINGER_POLL_US 50000
#define LINGER_US_MAX  5000000 /* then what is left of a dead server is killed */
#define BACKOFF_US_MIN 50000
#define BACKOFF_US_MAX 2000000
#define STOP_FAST_US   10000000 /* a fast stop may take so long, then SIGQUIT, then SIGKILL */
#define INITDB_US      120000000
#define FAILURES_MAX   5 /* in a row, before the first success: then the start has failed */

enum cluster_state {
    CLUSTER_MAKING,   /* initdb runs */
    CLUSTER_CLEARING, /* waits for what is left of a dead server */
    CLUSTER_STARTING, /* the server is there, but not ready */
    CLUSTER_UP,
    CLUSTER_DOWN, /* waits to start it again */
    CLUSTER_STOPPING,
    CLUSTER_ENDED, /* stopped, or never came up */
};

struct cluster {
    struct loop *loop;
    struct cluster_dir dir;
    enum cluster_state state;
    void (*on_state)(void *arg, bool up, const char *text);
    void *on_state_arg;
    cluster_started started; /* NULL: was called */
    void *started_arg;
    void (*stopped)(void *arg);
    void *stopped_arg;
    struct loop_timer *timer;
    struct making *making; /* initdb runs; NULL: it does not */
    uv_process_t *process; /* our child; NULL: adopted, or none */
    uv_poll_t *poll;       /* of the adopted server's pidfd */
    int pidfd;             /* -1: none */
    pid_t pid;             /* 0: no server */
    int64_t since_us, backoff_us;
    int stop_signals; /* sent so far */
    int failures;     /* ends without having been up */
    struct error err; /* why it never came up */
};

/* What initdb's end finds its cluster by; the cluster may be gone before it. */
struct making {
    struct cluster *cluster;
    struct child *child;
};

static void cluster_bring_up(struct cluster *cluster);

static void handle_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

static void server_forget(struct cluster *cluster)
{
    if (cluster->process) {
        cluster->process->data = NULL;
        uv_close((uv_handle_t *)cluster->process, handle_closed);
    }
    if (cluster->poll) {
        uv_poll_stop(cluster->poll);
        uv_close((uv_handle_t *)cluster->poll, handle_closed);
    }
    if (cluster->pidfd >= 0)
        close(cluster->pidfd);
    cluster->process = NULL;
    cluster->poll = NULL;
    cluster->pidfd = -1;
    cluster->pid = 0;
}

static void cluster_end(struct cluster *cluster)
{
    cluster->state = CLUSTER_ENDED;
    loop_timer_set(cluster->timer, 0); /* the callback comes later, from the timer */
}

static void cluster_fail(struct cluster *cluster, const struct error *err)
{
    cluster->err = *err;
    cluster_end(cluster);
}

/* --- the server's end */

static void server_ended(struct cluster *cluster)
{
    enum cluster_state was = cluster->state;

    server_forget(cluster);
    if (was == CLUSTER_STOPPING) {
        cluster_end(cluster);
        return;
    }
    log_warn("cluster.down", log_str("dir", cluster->dir.dir));
    if (cluster->started && ++cluster->failures >= FAILURES_MAX) {
        struct error err = {0};
        error_set(&err, STATUS_UNAVAILABLE, "the database server does not start: see %s",
                  cluster->dir.log);
        cluster_fail(cluster, &err);
        return;
    }
    cluster->state = CLUSTER_DOWN;
    loop_timer_set(cluster->timer, cluster->backoff_us);
    cluster->backoff_us *= 2;
    if (cluster->backoff_us > BACKOFF_US_MAX)
        cluster->backoff_us = BACKOFF_US_MAX;
    if (was == CLUSTER_UP && cluster->on_state)
        cluster->on_state(cluster->on_state_arg, false, "the database server ended");
}

static void server_exited(uv_process_t *process, int64_t code, int signal)
{
    struct cluster *cluster = process->data;

    (void)code;
    (void)signal; /* its log says why */
    if (cluster)
        server_ended(cluster);
}

static void server_gone(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    server_ended(poll->data);
}

/* --- the server's start */

static void server_watch(struct cluster *cluster)
{
    cluster->state = CLUSTER_STARTING;
    loop_timer_set(cluster->timer, READY_POLL_US);
}

/* False: it died meanwhile. */
static bool server_adopt(struct cluster *cluster, pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0 || cluster_proc_server(&cluster->dir) != pid) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    cluster->poll = NEW(uv_poll_t);
    cluster->poll->data = cluster;
    if (uv_poll_init(loop_uv_handle(cluster->loop), cluster->poll, fd) != 0) {
        mem_free(cluster->poll);
        cluster->poll = NULL;
        close(fd);
        return false;
    }
    cluster->pidfd = fd;
    cluster->pid = pid;
    uv_poll_start(cluster->poll, UV_READABLE, server_gone);
    log_info("cluster.adopt", log_str("dir", cluster->dir.dir), log_int("pid", pid));
    server_watch(cluster);
    return true;
}

static int server_spawn(struct cluster *cluster, int log_fd)
{
    char **words = cluster_dir_server(&cluster->dir);
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE},
                                     {.flags = UV_INHERIT_FD, .data.fd = log_fd},
                                     {.flags = UV_INHERIT_FD, .data.fd = log_fd}};
    uv_process_options_t options = {
        .exit_cb = server_exited,
        .file = words[0],
        .args = words,
        .env = (char **)(uintptr_t)cluster_dir_env,
        .cwd = cluster->dir.data,
        .flags = UV_PROCESS_DETACHED, /* Ctrl-C is for us, not for it */
        .stdio_count = 3,
        .stdio = stdio,
    };

    if (cluster->dir.change_user) {
        options.flags |= UV_PROCESS_SETUID | UV_PROCESS_SETGID;
        options.uid = cluster->dir.uid;
        options.gid = cluster->dir.gid;
    }
    cluster->process = NEW(uv_process_t);
    cluster->process->data = cluster;
    int rc = uv_spawn(loop_uv_handle(cluster->loop), cluster->process, &options);
    cluster_dir_free_words(words);
    return rc;
}

static void server_start(struct cluster *cluster)
{
    int log_fd =
        open(cluster->dir.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = log_fd < 0 ? -errno : server_spawn(cluster, log_fd);

    if (log_fd >= 0)
        close(log_fd);
    if (rc != 0) {
        log_error("cluster.start", log_str("dir", cluster->dir.dir), log_str("err", strerror(-rc)));
        server_ended(cluster);
        return;
    }
    cluster->pid = cluster->process->pid;
    log_info("cluster.start", log_str("dir", cluster->dir.dir), log_int("pid", cluster->pid));
    server_watch(cluster);
}

/* Nothing that wrote to this data may be alive when another server starts on it. */
static void cluster_clear(struct cluster *cluster)
{
    int64_t waited = loop_now_us(cluster->loop) - cluster->since_us;
    int signal = waited > LINGER_US_MAX ? SIGKILL : waited == 0 ? SIGQUIT : 0;

    if (cluster_proc_kill(&cluster->dir, signal) > 0) {
        loop_timer_set(cluster->timer, LINGER_POLL_US);
        return;
    }
    cluster_proc_forget(&cluster->dir);
    server_start(cluster);
}

static void cluster_bring_up(struct cluster *cluster)
{
    pid_t pid = cluster_proc_server(&cluster->dir);

    if (pid && server_adopt(cluster, pid))
        return;
    cluster->state = CLUSTER_CLEARING;
    cluster->since_us = loop_now_us(cluster->loop);
    if (cluster_proc_kill(&cluster->dir, SIGQUIT) > 0) {
        loop_timer_set(cluster->timer, LINGER_POLL_US);
        return;
    }
    cluster_proc_forget(&cluster->dir);
    server_start(cluster);
}

static void cluster_check_ready(struct cluster *cluster)
{
    cluster_started started = cluster->started;

    if (!cluster_proc_is_ready(&cluster->dir, cluster->pid)) {
        loop_timer_set(cluster->timer, READY_POLL_US);
        return;
    }
    cluster->state = CLUSTER_UP;
    cluster->backoff_us = BACKOFF_US_MIN;
    log_info("cluster.up", log_str("dir", cluster->dir.dir), log_int("pid", cluster->pid));
    cluster->started = NULL;
    if (started)
        started(cluster->started_arg, STATUS_OK, NULL, cluster->dir.conninfo);
    else if (cluster->on_state)
        cluster->on_state(cluster->on_state_arg, true, "the database server is back");
}

/* --- the first start */

static void cluster_made(void *arg, const struct child_result *result)
{
    struct making *making = arg;
    struct cluster *cluster = making->cluster;
    struct error err = {0};

    mem_free(making);
    if (!cluster)
        return;
    cluster->making = NULL;
    if (cluster->state == CLUSTER_STOPPING) {
        cluster_end(cluster);
        return;
    }
    if (result->st != STATUS_OK || result->exit_code != 0) {
        size_t len = strcspn(result->errors, "\n");
        error_set(&err, STATUS_INTERNAL, "initdb %s: %.*s", cluster->dir.fresh, (int)len,
                  result->err ? result->err->text : result->errors);
        cluster_fail(cluster, &err);
        return;
    }
    if (cluster_dir_adopt(&cluster->dir, &err) != STATUS_OK)
        cluster_fail(cluster, &err);
    else
        cluster_bring_up(cluster);
}

static void cluster_make(struct cluster *cluster)
{
    struct error err = {0};

    if (cluster_dir_prepare(&cluster->dir, &err) != STATUS_OK) {
        cluster_fail(cluster, &err);
        return;
    }
    log_info("cluster.make", log_str("dir", cluster->dir.dir));
    char **words = cluster_dir_initdb(&cluster->dir);
    struct child_options options = {
        .argv = (const char *const *)words,
        .env = cluster_dir_env,
        .dir = cluster->dir.fresh,
        .timeout_us = INITDB_US,
        .uid = cluster->dir.change_user ? cluster->dir.uid : 0,
        .gid = cluster->dir.change_user ? cluster->dir.gid : 0,
    };
    cluster->state = CLUSTER_MAKING;
    cluster->making = NEW(struct making);
    cluster->making->cluster = cluster;
    cluster->making->child = child_start(cluster->loop, &options, cluster_made, cluster->making);
    cluster_dir_free_words(words);
}

/* --- stop */

static void server_signal(struct cluster *cluster, int signal)
{
    if (cluster->process)
        uv_process_kill(cluster->process, signal);
    else if (cluster->pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, cluster->pidfd, signal, NULL, 0);
}

static void cluster_stop_harder(struct cluster *cluster)
{
    static const int signals[] = {SIGINT, SIGQUIT, SIGKILL};

    server_signal(cluster, signals[cluster->stop_signals]);
    if (cluster->stop_signals < 2)
        cluster->stop_signals++;
    loop_timer_set(cluster->timer, STOP_FAST_US);
}

static void cluster_finish(struct cluster *cluster)
{
    cluster_started started = cluster->started;
    void (*stopped)(void *) = cluster->stopped;

    if (cluster->err.code == STATUS_OK)
        error_set(&cluster->err, STATUS_CANCELLED, "the database was stopped before it came up");
    cluster->started = NULL;
    cluster->stopped = NULL;
    if (started)
        started(cluster->started_arg, cluster->err.code, &cluster->err, NULL);
    if (stopped)
        stopped(cluster->stopped_arg);
}

void cluster_stop(struct cluster *cluster, void (*done)(void *arg), void *arg)
{
    cluster->stopped = done;
    cluster->stopped_arg = arg;
    if (cluster->pid) {
        cluster->state = CLUSTER_STOPPING;
        cluster->stop_signals = 0;
        cluster_stop_harder(cluster);
    } else if (cluster->making) {
        cluster->state = CLUSTER_STOPPING;
        child_cancel(cluster->making->child);
    } else {
        cluster_end(cluster);
    }
}

/* --- life */

static void cluster_timer(void *arg)
{
    struct cluster *cluster = arg;

    switch (cluster->state) {
    case CLUSTER_MAKING:
        if (!cluster->making)
            cluster_make(cluster);
        break;
    case CLUSTER_CLEARING:
        cluster_clear(cluster);
        break;
    case CLUSTER_STARTING:
        cluster_check_ready(cluster);
        break;
    case CLUSTER_DOWN:
        cluster_bring_up(cluster);
        break;
    case CLUSTER_STOPPING:
        cluster_stop_harder(cluster);
        break;
    case CLUSTER_ENDED:
        cluster_finish(cluster);
        break;
    case CLUSTER_UP:
        break;
    }
}

struct cluster *cluster_start(const struct cluster_options *options, cluster_started done,
                              void *arg)
{
    struct cluster *cluster = NEW(struct cluster);
    struct error err = {0};

    cluster->loop = options->loop;
    cluster->on_state = options->on_state;
    cluster->on_state_arg = options->on_state_arg;
    cluster->started = done;
    cluster->started_arg = arg;
    cluster->pidfd = -1;
    cluster->backoff_us = BACKOFF_US_MIN;
    cluster->timer = loop_timer_create(cluster->loop, cluster_timer, cluster);
    if (cluster_dir_init(&cluster->dir, options->dir, options->user, options->bin_dir, &err) !=
        STATUS_OK) {
        cluster_fail(cluster, &err);
        return cluster;
    }
    cluster->state = cluster_dir_is_made(&cluster->dir) ? CLUSTER_DOWN : CLUSTER_MAKING;
    loop_timer_set(cluster->timer, 0);
    return cluster;
}

void cluster_destroy(struct cluster *cluster)
{
    if (!cluster)
        return;
    server_forget(cluster);
    if (cluster->making) {
        cluster->making->cluster = NULL;
        child_cancel(cluster->making->child);
    }
    loop_timer_destroy(cluster->timer);
    cluster_dir_fini(&cluster->dir);
    mem_free(cluster);
}

pid_t cluster_pid(const struct cluster *cluster)
{
    return cluster->pid;
}

bool cluster_adopted(const struct cluster *cluster)
{
    return cluster->poll != NULL;
}
