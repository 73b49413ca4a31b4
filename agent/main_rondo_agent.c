/* main_rondo_agent.c - rondo-agent: options, seams, loop. Everything else is in agent.c and below.
 *
 * Its end, asked for or not, leaves workers running: the next one takes them up. */
#include "agent/agent.h"
#include "agent/device.h"
#include "agent/link_rpc.h"
#include "agent/page_guard.h"
#include "agent/peer_server.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

struct program {
    struct agent_config config;
    struct loop *loop;
    struct device_pool *devices;
    struct agent_options options;
    struct agent *agent;
    struct peer_server *peers; /* NULL: no part is given to other nodes */
    char self[4096], shim[4200], boot_id[64], hostname[256], address[64];
    uv_signal_t term, interrupt;
    int exit_code;
};

static void strip(char *text)
{
    text[strcspn(text, "\r\n")] = '\0';
}

static enum status read_line(const char *path, char *out, size_t cap, struct error *err)
{
    char *bytes = NULL;
    size_t len = 0;
    enum status st = file_read(path, 4096, &bytes, &len, err);
    if (st != STATUS_OK)
        return st;
    (void)snprintf(out, cap, "%s", bytes);
    strip(out);
    mem_free(bytes);
    return STATUS_OK;
}

/* The address of this host as the daemon's network sees it: no packet is sent. */
static void find_address(struct program *program)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM}, *found = NULL;
    struct sockaddr_in own;
    socklen_t len = sizeof(own);
    (void)snprintf(program->address, sizeof(program->address), "127.0.0.1");
    if (*program->config.address) {
        (void)snprintf(program->address, sizeof(program->address), "%s", program->config.address);
        return;
    }
    if (program->config.daemon.count == 0)
        return;
    SCOPED_TEXT char *host = mem_strdup(program->config.daemon.items[0]);
    char *colon = strrchr(host, ':');
    if (!colon || strncmp(host, "unix:", 5) == 0)
        return;
    *colon = '\0';
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &len) == 0)
        (void)inet_ntop(AF_INET, &own.sin_addr, program->address, sizeof(program->address));
    if (fd >= 0)
        (void)close(fd);
    freeaddrinfo(found);
}

static uint64_t memory_mib(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size >> 20 : 0;
}

/* The rondo package where the build, or an installation, puts it beside us. */
static void find_python(struct program *program)
{
    const char *slash = strrchr(program->self, '/');
    if (*program->config.python_path || !slash)
        return;
    SCOPED_TEXT char *near =
        mem_printf("%.*s/../lib/python", (int)(slash - program->self), program->self);
    char *full = realpath(near, NULL);
    if (!full)
        return;
    mem_free(program->config.python_path);
    program->config.python_path = full;
}

static enum status find_self(struct program *program, struct error *err)
{
    ssize_t n = readlink("/proc/self/exe", program->self, sizeof(program->self) - 1);
    if (n <= 0)
        return error_set(err, STATUS_INTERNAL, "read /proc/self/exe: %s", strerror(errno));
    program->self[n] = '\0';
    find_python(program);
    if (*program->config.shim) {
        (void)snprintf(program->shim, sizeof(program->shim), "%s", program->config.shim);
        return STATUS_OK;
    }
    const char *slash = strrchr(program->self, '/');
    (void)snprintf(program->shim, sizeof(program->shim), "%.*s/rondo-shim",
                   (int)(slash - program->self), program->self);
    return STATUS_OK;
}

/* Two agents over one directory would tear it apart. Held until the process ends. */
static enum status lock_state(const char *dir, struct error *err)
{
    enum status st = file_make_dirs(dir, 0711, err);
    if (st != STATUS_OK)
        return st;
    if (geteuid() == 0 && chmod(dir, 0711) != 0) /* workers of other users pass through it */
        return error_set(err, STATUS_DENIED, "chmod %s: %s", dir, strerror(errno));
    SCOPED_TEXT char *path = mem_printf("%s/lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set(err, STATUS_UNAVAILABLE, "open %s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        (void)close(fd);
        return error_set(err, STATUS_EXISTS, "another agent uses %s", dir);
    }
    return STATUS_OK;
}

static enum status make_vaults(const struct agent_config *config, struct error *err)
{
    for (size_t i = 0; i < config->vault.count; i++) {
        const char *item = config->vault.items[i];
        const char *equals = strchr(item, '='), *colon = strrchr(item, ':');
        if (!equals || equals == item || equals[1] != '/')
            return error_set(err, STATUS_INVALID, "vault '%s' is not name=/path:class", item);
        SCOPED_TEXT char *path = colon && colon > equals
                                     ? mem_printf("%.*s", (int)(colon - equals - 1), equals + 1)
                                     : mem_strdup(equals + 1);
        enum status st = file_make_dirs(path, 0755, err);
        if (st != STATUS_OK)
            return error_wrap(err, "vault %s", item);
    }
    return STATUS_OK;
}

static const char *inherited(const char *name)
{
    return getenv(name);
}

static void on_devices(void *arg)
{
    struct program *program = arg;
    if (program->agent)
        agent_devices_changed(program->agent);
}

static void on_failed(void *arg, const struct error *err)
{
    struct program *program = arg;
    (void)err;
    program->exit_code = 1;
    loop_uv_stop(program->loop);
}

static void on_signal(uv_signal_t *handle, int signo)
{
    struct program *program = handle->data;
    log_info("agent.stop", log_int("signal", signo));
    loop_uv_stop(program->loop);
}

static enum status make_seams(struct program *program, struct error *err)
{
    struct agent_config *config = &program->config;
    struct agent_options *options = &program->options;
    struct device_options devices = {
        .loop = program->loop,
        .self_path = program->self,
        .nvidia_library = *config->nvidia_library ? config->nvidia_library : NULL,
        .cpu_slots = config->cpu_slots,
        .probe_ms_max = config->probe_ms_max,
        .probe_every_ms = config->probe_every_ms,
        .changed = on_devices,
        .arg = program,
    };
    struct launcher_shim_options launcher = {.loop = program->loop,
                                             .shim_path = program->shim,
                                             .spares = config->spares,
                                             .tasks_max = config->worker_tasks_max};
    struct link_rpc_options link = {
        .loop = program->loop,
        .daemons = &config->daemon,
        .cert = config->cert,
        .key = config->key,
        .ca = config->ca,
        .server_name = config->server_name,
    };
    enum status st = launcher_shim_create(&launcher, &options->launcher, err);
    if (st == STATUS_OK)
        st = link_rpc_create(&link, &options->uplink, err);
    if (st != STATUS_OK)
        return st;
    program->devices = device_pool_create(&devices);
    options->inventory = inventory_pool_create(program->devices);
    options->files = files_uv_create(program->loop, 6);
    options->vaults = vault_pool_uv_create(program->loop, 4);
    SCOPED_TEXT char *sockets = mem_printf("%s/sockets", config->state_dir);
    options->socks = sock_uv_create(program->loop, sockets, config->spares);
    return STATUS_OK;
}

/* --- parts for other nodes */

static void on_peer_key(void *arg, const unsigned char *key, size_t len)
{
    struct program *program = arg;
    if (program->peers && len == PEER_SERVER_KEY_BYTES)
        peer_server_key(program->peers, key);
}

/* Directories of the vaults that no other node reads. */
static size_t own_vaults(const struct agent_config *config, char **out)
{
    size_t count = 0;
    for (size_t i = 0; i < config->vault.count && count < PEER_SERVER_VAULTS; i++) {
        const char *item = config->vault.items[i], *path = strchr(item, '=') + 1;
        const char *colon = strrchr(path, ':');
        if (colon && strcmp(colon, ":node") != 0)
            continue;
        out[count++] = mem_printf("%.*s", (int)(colon ? colon - path : (long)strlen(path)), path);
    }
    return count;
}

/* Without it everything else goes on: jobs then wait for this node where they need its bytes. */
static void start_peers(struct program *program)
{
    const struct agent_config *config = &program->config;
    const char *listen = *config->peer_listen ? config->peer_listen : program->address;
    char address[PEER_LINK_ADDRESS], *vaults[PEER_SERVER_VAULTS];
    struct error err = {STATUS_OK, ""};
    struct peer_server_options options = {
        .address = address,
        .port = (uint16_t)config->peer_port,
        .node = *config->node ? config->node : program->hostname,
        .files = {.cert = config->cert, .key = config->key, .ca = config->ca},
        .vaults = (const char *const *)vaults,
        .vaults_count = own_vaults(config, vaults),
    };
    bool wanted = options.vaults_count && strcmp(listen, "none") != 0;
    enum status st = STATUS_OK;
    if (wanted)
        st = peer_link_resolve(listen, address, &err);
    if (wanted && st == STATUS_OK)
        st = peer_server_create(&options, &program->peers, &err);
    if (st != STATUS_OK)
        log_error("peer.listen", log_err(&err));
    for (size_t i = 0; i < options.vaults_count; i++)
        mem_free(vaults[i]);
    program->options.peer_port = program->peers ? peer_server_port(program->peers) : 0;
    program->options.peer_key = on_peer_key;
}

static void watch_signals(struct program *program)
{
    uv_loop_t *uv = loop_uv_handle(program->loop);
    (void)uv_signal_init(uv, &program->term);
    (void)uv_signal_init(uv, &program->interrupt);
    program->term.data = program->interrupt.data = program;
    (void)uv_signal_start(&program->term, on_signal, SIGTERM);
    (void)uv_signal_start(&program->interrupt, on_signal, SIGINT);
    uv_unref((uv_handle_t *)&program->term);
    uv_unref((uv_handle_t *)&program->interrupt);
    (void)signal(SIGPIPE, SIG_IGN);
    page_guard_install();
}

static enum status start(struct program *program, struct error *err)
{
    struct agent_options *options = &program->options;
    enum status st = find_self(program, err);
    if (st == STATUS_OK)
        st = read_line("/proc/sys/kernel/random/boot_id", program->boot_id,
                       sizeof(program->boot_id), err);
    if (st == STATUS_OK)
        st = lock_state(program->config.state_dir, err);
    if (st == STATUS_OK)
        st = make_vaults(&program->config, err);
    if (st == STATUS_OK)
        st = make_seams(program, err);
    if (st != STATUS_OK)
        return st;
    find_address(program);
    start_peers(program);
    options->loop = program->loop;
    options->config = &program->config;
    options->boot_id = program->boot_id;
    options->hostname = program->hostname;
    options->address = program->address;
    options->memory_mib = memory_mib();
    options->root = geteuid() == 0;
    options->inherited = inherited;
    options->failed = on_failed;
    options->arg = program;
    program->agent = agent_create(options);
    return STATUS_OK;
}

static void raise_limits(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* The state directory is absolute: workers have other working directories. */
static void settle_paths(struct agent_config *config)
{
    char cwd[2048];
    if (*config->state_dir == '/' || !getcwd(cwd, sizeof(cwd)))
        return;
    char *full = mem_printf("%s/%s", cwd, config->state_dir);
    mem_free(config->state_dir);
    config->state_dir = full;
}

int main(int argc, char **argv)
{
    static struct program program;
    struct text problems;
    struct error err = {STATUS_OK, ""};
    int first = argc;
    if (argc >= 3 && strcmp(argv[1], "--probe-devices") == 0)
        return device_probe_main(argv[2], argc > 3 ? argv[3] : NULL);
    text_init(&problems, 0);
    option_defaults(config_rows, &program.config);
    if (option_flags(&config_page, &program.config, argc, argv, &first, &problems) != STATUS_OK ||
        first != argc) {
        fprintf(stderr, "%s%s", text_get(&problems),
                first != argc ? "rondo-agent takes options only; try --help\n" : "");
        return 2;
    }
    text_fini(&problems);
    log_setup("rondo-agent", program.config.debug ? LOG_DEBUG : LOG_INFO, 2);
    (void)setenv("UV_THREADPOOL_SIZE", "11", 1); /* files 6, vaults 4, sockets */
    (void)umask(022);
    raise_limits();
    settle_paths(&program.config);
    (void)gethostname(program.hostname, sizeof(program.hostname) - 1);
    program.loop = loop_uv_create();
    watch_signals(&program);
    if (start(&program, &err) != STATUS_OK) {
        log_error("agent.start", log_err(&err));
        return 1;
    }
    loop_uv_run(program.loop);
    agent_leave(program.agent);
    /* Seams, streams and workers' handles end with the process. So does the pool: exit() would wait
     * for its threads, which may read a large checkpoint or hang on a file system that is away. */
    _exit(program.exit_code);
}
