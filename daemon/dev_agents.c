/* dev_agents.c - see dev_agents.h. */
#include "daemon/dev_agents.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "daemon/dev_ports.h"
#include "daemon/dev_process.h"
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#define DEV_BACKOFF_MIN_US (500 * 1000ll)
#define DEV_BACKOFF_MAX_US (10 * 1000000ll)
#define DEV_STEADY_US      (10 * 1000000ll) /* it ran this long: the back-off starts anew */
#define DEV_STOP_US        (5 * 1000000ll)
#define DEV_ARGS_MAX       64

struct dev_agent {
    struct dev_agents *agents;
    char name[16];
    char *path, *record, *log;
    uint32_t index;
    struct dev_ports ports;
    pid_t pid; /* 0: does not run */
    int pidfd;
    uv_poll_t *poll;
    struct loop_timer *timer; /* starts it again */
    int64_t since_us, backoff_us;
};
struct dev_agents {
    struct dev_agents_options options;
    char *program, *server;
    struct dev_agent *list;
    size_t count;
    struct loop_timer *timer; /* ends the wait of stop */
    void (*stopped)(void *arg);
    void *stopped_arg;
    bool stopping;
};

/* --- one agent's process */

static void dev_agent_poll_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

static void dev_agent_unwatch(struct dev_agent *agent)
{
    if (agent->poll) {
        uv_poll_stop(agent->poll);
        uv_close((uv_handle_t *)(void *)agent->poll, dev_agent_poll_closed);
        agent->poll = NULL;
        close(agent->pidfd);
    }
    agent->pid = 0;
}

static void dev_agents_check_stopped(struct dev_agents *agents)
{
    for (size_t i = 0; i < agents->count; i++)
        if (agents->list[i].pid)
            return;
    if (agents->stopping)
        loop_timer_set(agents->timer, 0);
}

static void dev_agent_ended(uv_poll_t *poll, int st, int events)
{
    struct dev_agent *agent = poll->data;
    struct dev_agents *agents = agent->agents;
    int64_t now = loop_now_us(agents->options.loop);
    int code = 0;

    (void)st;
    (void)events;
    waitpid(agent->pid, &code, WNOHANG); /* not ours when it was found again */
    if (agents->stopping)
        log_info("dev.agent-stopped", log_str("node", agent->name));
    else
        log_warn("dev.agent-ended", log_str("node", agent->name), log_int("status", code));
    dev_agent_unwatch(agent);
    if (agents->stopping) {
        dev_agents_check_stopped(agents);
        return;
    }
    if (now - agent->since_us > DEV_STEADY_US)
        agent->backoff_us = DEV_BACKOFF_MIN_US;
    loop_timer_set(agent->timer, agent->backoff_us);
    agent->backoff_us *= 2;
    if (agent->backoff_us > DEV_BACKOFF_MAX_US)
        agent->backoff_us = DEV_BACKOFF_MAX_US;
}

static void dev_agent_watch(struct dev_agent *agent, pid_t pid, int pidfd)
{
    agent->pid = pid;
    agent->pidfd = pidfd;
    agent->since_us = loop_now_us(agent->agents->options.loop);
    agent->poll = NEW(uv_poll_t);
    agent->poll->data = agent;
    uv_poll_init(loop_uv_handle(agent->agents->options.loop), agent->poll, pidfd);
    uv_poll_start(agent->poll, UV_READABLE, dev_agent_ended);
}

/* --- its command line */

struct dev_args {
    char *argv[DEV_ARGS_MAX + 1];
    size_t count;
};

static void dev_args_add_take(struct dev_args *args, char *arg_take)
{
    if (args->count < DEV_ARGS_MAX)
        args->argv[args->count++] = arg_take;
    else
        mem_free(arg_take);
}

static void dev_agent_args(const struct dev_agent *agent, struct dev_args *args)
{
    const struct dev_agents *agents = agent->agents;
    const struct config *config = agents->options.config;

    dev_args_add_take(args, mem_strdup(agents->program));
    dev_args_add_take(args, mem_printf("--node=%s", agent->name));
    dev_args_add_take(args, mem_printf("--daemon=%s", agents->server));
    dev_args_add_take(args, mem_printf("--state-dir=%s", agent->path));
    dev_args_add_take(args, mem_printf("--cert=%s/agent.pem", agent->path));
    dev_args_add_take(args, mem_printf("--key=%s/agent.key", agent->path));
    dev_args_add_take(args, mem_printf("--ca=%s/ca.pem", agent->path));
    dev_args_add_take(args, mem_printf("--vault=%s=%s:shared", config->default_vault,
                                       agents->options.dir->vault));
    dev_args_add_take(args, mem_printf("--cpu-slots=%u", config->agent_slots));
    dev_args_add_take(args, mem_printf("--port-first=%u", agent->ports.first));
    dev_args_add_take(args, mem_printf("--port-last=%u", agent->ports.last));
    dev_args_add_take(args, mem_strdup("--address=127.0.0.1"));
    /* else each gloo rank looks up the machine's name, which may take long or be unknown */
    dev_args_add_take(args, mem_strdup("--worker-env=GLOO_SOCKET_IFNAME=lo"));
    for (size_t i = 0; i < config->agent_flags.count; i++)
        dev_args_add_take(args, mem_strdup(config->agent_flags.items[i]));
}

static void dev_agent_start(void *arg)
{
    struct dev_agent *agent = arg;
    struct dev_args args = {0};
    struct error err;
    pid_t pid;
    int pidfd;

    if (agent->agents->stopping)
        return;
    dev_agent_args(agent, &args);
    enum status st = dev_process_start(
        &(struct dev_process_options){agent->record, agent->log, args.argv}, &pid, &pidfd, &err);
    for (size_t i = 0; i < args.count; i++)
        mem_free(args.argv[i]);
    if (st != STATUS_OK) {
        log_error("dev.agent-start", log_str("node", agent->name), log_err(&err));
        loop_timer_set(agent->timer, DEV_BACKOFF_MAX_US);
        return;
    }
    log_info("dev.agent-started", log_str("node", agent->name), log_int("pid", pid));
    dev_agent_watch(agent, pid, pidfd);
}

/* The ports of the last run when nobody else took them meanwhile; true then. */
static bool dev_agent_ports(struct dev_agent *agent)
{
    SCOPED_TEXT char *path = mem_printf("%s/ports", agent->path);
    SCOPED_TEXT char *before = NULL;
    uint64_t wanted = 0;
    size_t len = 0;
    struct error err;

    if (file_read(path, 64, &before, &len, NULL) == STATUS_OK) {
        before[strcspn(before, "\n")] = '\0';
        (void)text_to_u64(before, 0, UINT16_MAX, &wanted);
    }
    if (dev_ports_take((uint32_t)wanted, agent->index, &agent->ports) != STATUS_OK)
        log_warn("dev.ports-shared", log_str("node", agent->name),
                 log_int("first", agent->ports.first));
    if (wanted == agent->ports.first)
        return true;
    SCOPED_TEXT char *line = mem_printf("%u\n", agent->ports.first);
    if (file_write_atomic(path, line, strlen(line), 0600, &err) != STATUS_OK)
        log_warn("dev.ports", log_str("node", agent->name), log_err(&err));
    return false;
}

/* One that runs from before is kept when it knows the right address and ports; else it makes room.
 */
static void dev_agent_begin(struct dev_agent *agent, bool same)
{
    pid_t pid;
    int pidfd;

    if (dev_process_find(agent->record, &pid, &pidfd) != STATUS_OK) {
        dev_agent_start(agent);
        return;
    }
    log_info("dev.agent-found", log_str("node", agent->name), log_int("pid", pid));
    dev_agent_watch(agent, pid, pidfd);
    if (!same)
        syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0);
}

/* --- all of them */

static char *dev_agents_program(const struct config *config)
{
    char self[PATH_MAX];
    ssize_t len;

    if (config->agent_program && *config->agent_program)
        return mem_strdup(config->agent_program);
    len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    return mem_printf("%s/rondo-agent", self);
}

static enum status dev_agent_init(struct dev_agents *agents, struct dev_agent *agent,
                                  uint32_t index, struct error *err)
{
    SCOPED_TEXT char *server_file = NULL;
    SCOPED_TEXT char *before = NULL;
    size_t len;

    agent->agents = agents;
    agent->index = index;
    agent->ports.lease = -1;
    agent->backoff_us = DEV_BACKOFF_MIN_US;
    snprintf(agent->name, sizeof(agent->name), "n%u", index + 1);
    server_file = mem_printf("%s/%s/server", agents->options.dir->agents, agent->name);
    if (file_read(server_file, 512, &before, &len, NULL) != STATUS_OK)
        before = mem_strdup("");
    before[strcspn(before, "\n")] = '\0';
    enum status st =
        dev_dir_agent(agents->options.dir, agent->name, agents->server, &agent->path, err);
    if (st != STATUS_OK)
        return st;
    agent->record = mem_printf("%s/agent.pid", agent->path);
    agent->log = mem_printf("%s/agent.log", agent->path);
    agent->timer = loop_timer_create(agents->options.loop, dev_agent_start, agent);
    bool same_ports = dev_agent_ports(agent);
    dev_agent_begin(agent, same_ports && strcmp(before, agents->server) == 0);
    return STATUS_OK;
}

static void dev_agents_waited(void *arg)
{
    struct dev_agents *agents = arg;
    void (*stopped)(void *arg) = agents->stopped;

    agents->stopped = NULL;
    if (stopped)
        stopped(agents->stopped_arg);
}

enum status dev_agents_start(const struct dev_agents_options *options, struct dev_agents **out,
                             struct error *err)
{
    SCOPED(dev_agents_destroy) struct dev_agents *agents = NEW(struct dev_agents);
    uint32_t count = options->config->agents;

    agents->options = *options;
    agents->server = mem_strdup(options->server);
    agents->program = dev_agents_program(options->config);
    agents->list = mem_array(count + 1, sizeof(*agents->list));
    agents->timer = loop_timer_create(options->loop, dev_agents_waited, agents);
    for (uint32_t i = 0; i < count; i++) {
        agents->count = i + 1;
        enum status st = dev_agent_init(agents, &agents->list[i], i, err);
        if (st != STATUS_OK)
            return st;
    }
    *out = TAKE(agents);
    return STATUS_OK;
}

void dev_agents_stop(struct dev_agents *agents, void (*done)(void *arg), void *arg)
{
    agents->stopping = true;
    agents->stopped = done;
    agents->stopped_arg = arg;
    for (size_t i = 0; i < agents->count; i++) {
        loop_timer_stop(agents->list[i].timer);
        if (agents->list[i].pid)
            syscall(SYS_pidfd_send_signal, agents->list[i].pidfd, SIGTERM, NULL, 0);
    }
    loop_timer_set(agents->timer, DEV_STOP_US);
    dev_agents_check_stopped(agents);
}

void dev_agents_destroy(struct dev_agents *agents)
{
    if (!agents)
        return;
    for (size_t i = 0; i < agents->count; i++) {
        struct dev_agent *agent = &agents->list[i];
        dev_agent_unwatch(agent);
        dev_ports_release(&agent->ports);
        loop_timer_destroy(agent->timer);
        mem_free(agent->path);
        mem_free(agent->record);
        mem_free(agent->log);
    }
    loop_timer_destroy(agents->timer);
    mem_free(agents->list);
    mem_free(agents->program);
    mem_free(agents->server);
    mem_free(agents);
}
