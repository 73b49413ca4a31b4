/* stand.c - see stand.h. */
#include "tests/bench/stand.h"
#include "base/file.h"
#include "base/text.h"
#include "tests/bench/control.h"
#include "tests/bench/figure.h"
#include "tests/bench/process.h"
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS    60000
#define STOP_MS     30000
#define SMALL_FILE  ((size_t)1 << 20)
#define PROGRAM_MAX ((size_t)64 << 20)
#define PROCESS_MAX 65536
#define WORDS_MAX   4096

/* --- processes that belong to it */

struct family {
    pid_t pids[512];
    enum { KIND_OTHER, KIND_DAEMON, KIND_AGENT, KIND_POSTGRES } kinds[512];
    size_t count;
};

/* Third and later fields of /proc/PID/stat; NULL: it is gone. */
static char *stat_of(pid_t pid)
{
    SCOPED_TEXT char *path = mem_printf("/proc/%d/stat", (int)pid);
    SCOPED_TEXT char *text = NULL;
    size_t len;

    if (file_read(path, 4096, &text, &len, NULL) != STATUS_OK)
        return NULL;
    const char *rest = strrchr(text, ')');
    return rest && rest[1] ? mem_strdup(rest + 2) : NULL;
}

static long field_of(const char *stat, int number) /* as in proc(5); 3 is the first here */
{
    for (int i = 3; i < number && stat; i++) {
        stat = strchr(stat, ' ');
        stat = stat ? stat + 1 : NULL;
    }
    return stat ? strtol(stat, NULL, 10) : 0;
}

static bool names_dir(pid_t pid, const char *dir, char *words, size_t cap)
{
    SCOPED_TEXT char *path = mem_printf("/proc/%d/cmdline", (int)pid);
    SCOPED_TEXT char *text = NULL;
    size_t len;

    if (file_read(path, (size_t)1 << 20, &text, &len, NULL) != STATUS_OK)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!text[i])
            text[i] = ' ';
    snprintf(words, cap, "%s", text);
    return strstr(text, dir) != NULL;
}

static void family_add(struct family *family, pid_t pid, int kind)
{
    for (size_t i = 0; i < family->count; i++)
        if (family->pids[i] == pid)
            return;
    if (family->count == COUNT_OF(family->pids))
        return;
    family->pids[family->count] = pid;
    family->kinds[family->count++] = (__typeof__(family->kinds[0]))kind;
}

/* Whoever has the directory on his command line, and the servers of its postmaster. */
static void family_find(const struct stand *stand, struct family *family)
{
    struct file_list names = {0};
    char words[WORDS_MAX];
    pid_t postmaster = 0;

    family->count = 0;
    if (file_list_read("/proc", PROCESS_MAX, &names, NULL) != STATUS_OK)
        return;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < names.count; i++) {
            pid_t pid = (pid_t)strtol(names.names[i], NULL, 10);
            if (!isdigit((unsigned char)names.names[i][0]) || pid == getpid())
                continue;
            if (pass == 1) {
                SCOPED_TEXT char *stat = stat_of(pid);
                if (postmaster && stat && field_of(stat, 4) == postmaster)
                    family_add(family, pid, KIND_POSTGRES);
                continue;
            }
            if (!names_dir(pid, stand->dir, words, sizeof(words)))
                continue;
            bool postgres = strstr(words, "/postgres -D ") != NULL;
            postmaster = postgres ? pid : postmaster;
            family_add(family, pid,
                       postgres                              ? KIND_POSTGRES
                       : pid == stand->daemon                ? KIND_DAEMON
                       : strstr(words, "rondo-agent --node") ? KIND_AGENT
                                                             : KIND_OTHER);
        }
    file_list_fini(&names);
}

pid_t stand_agent(const struct stand *stand, const char *name)
{
    struct family *family = NEW(struct family);
    SCOPED_TEXT char *flag = mem_printf("--node=%s ", name);
    char words[WORDS_MAX];
    pid_t found = 0;

    family_find(stand, family);
    for (size_t i = 0; i < family->count; i++)
        if (family->kinds[i] == KIND_AGENT &&
            names_dir(family->pids[i], flag, words, sizeof(words)))
            found = family->pids[i];
    mem_free(family);
    return found;
}

void stand_cpu(const struct stand *stand, struct stand_cpu *out)
{
    struct family *family = NEW(struct family);
    double tick_ms = 1000.0 / (double)sysconf(_SC_CLK_TCK);
    double sums[4] = {0};

    family_find(stand, family);
    for (size_t i = 0; i < family->count; i++) {
        SCOPED_TEXT char *stat = stat_of(family->pids[i]);
        if (stat)
            sums[family->kinds[i]] += tick_ms * (double)(field_of(stat, 14) + field_of(stat, 15));
    }
    mem_free(family);
    *out = (struct stand_cpu){sums[KIND_DAEMON], sums[KIND_AGENT], sums[KIND_POSTGRES]};
}

void stand_note_cpu(const struct stand *stand, const char *name, const struct stand_cpu *before,
                    double count)
{
    SCOPED_TEXT char *daemon = mem_printf("%s.cpu_daemon_ms", name);
    SCOPED_TEXT char *agents = mem_printf("%s.cpu_agents_ms", name);
    SCOPED_TEXT char *postgres = mem_printf("%s.cpu_postgres_ms", name);
    struct stand_cpu now;

    stand_cpu(stand, &now);
    figure_note(daemon, (now.daemon - before->daemon) / count, "ms");
    figure_note(agents, (now.agents - before->agents) / count, "ms");
    figure_note(postgres, (now.postgres - before->postgres) / count, "ms");
}

/* --- its files */

static enum status copy_program(const struct stand *stand, const char *name, char **out,
                                struct error *err)
{
    SCOPED_TEXT char *from = mem_printf("%s/%s", stand->bench->bin, name);
    SCOPED_TEXT char *to = mem_printf("%s/%s", stand->dir, name);
    SCOPED_TEXT char *bytes = NULL;
    size_t len;
    enum status st = file_read(from, PROGRAM_MAX, &bytes, &len, err);

    if (st == STATUS_OK)
        st = file_write_atomic(to, bytes, len, 0755, err);
    if (st == STATUS_OK)
        *out = TAKE(to);
    return st;
}

static enum status make_dir(struct stand *stand, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/rondo-bench.XXXXXX", stand->bench->base_dir);

    if (!mkdtemp(path) || chmod(path, 0711) != 0) /* the database's user passes through */
        return error_set(err, file_status(errno), "make %s: %s", path, strerror(errno));
    stand->dir = TAKE(path);
    stand->ctl = mem_printf("%s/d/ctl", stand->dir);
    stand->fifo = mem_printf("%s/fifo", stand->dir);
    enum status st = copy_program(stand, "rondo-bench-probe", &stand->probe, err);
    return st == STATUS_OK ? copy_program(stand, "rondo-bench-points", &stand->points, err) : st;
}

/* --- start */

static enum status start_daemon(struct stand *stand, uint32_t agents, uint32_t slots,
                                struct error *err)
{
    SCOPED_TEXT char *program = mem_printf("%s/rondod", stand->bench->bin);
    SCOPED_TEXT char *dir = mem_printf("--dir=%s/d", stand->dir);
    SCOPED_TEXT char *count = mem_printf("--agents=%u", agents);
    SCOPED_TEXT char *each = mem_printf("--agent-slots=%u", slots);
    SCOPED_TEXT char *log = mem_printf("%s/rondod.log", stand->dir);
    const char *argv[] = {
        program, "dev", dir, "--listen=127.0.0.1:0", "--status-listen=", count, each, NULL};

    return process_start(argv, "/", log, &stand->daemon, err);
}

/* The line "database   psql "..."" of what the daemon says once it is ready. */
static bool read_database(struct stand *stand)
{
    static const char before[] = "database   psql \"";
    SCOPED_TEXT char *log = mem_printf("%s/rondod.log", stand->dir);
    SCOPED_TEXT char *text = NULL;
    size_t len;

    if (file_read(log, SMALL_FILE, &text, &len, NULL) != STATUS_OK || !strstr(text, "\nready\n"))
        return false;
    char *from = strstr(text, before);
    if (!from)
        return false;
    from += sizeof(before) - 1;
    from[strcspn(from, "\"")] = '\0';
    stand->database = mem_strdup(from);
    return true;
}

static bool has_ended(pid_t child)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid;
}

static enum status await_daemon(struct stand *stand, uint32_t agents, struct error *err)
{
    int64_t end_us = process_now_us() + START_MS * 1000ll;
    uint32_t healthy = 0;
    enum status st = STATUS_OK;

    while (!stand->database && !read_database(stand)) {
        if (process_interrupted())
            return error_set(err, STATUS_CANCELLED, "interrupted");
        if (process_now_us() > end_us || has_ended(stand->daemon))
            return error_set(err, STATUS_DEADLINE, "rondod dev is not ready: see %s/rondod.log",
                             stand->dir);
        bench_rest(stand->bench, 20);
    }
    st = control_open(stand->bench, stand->ctl, &stand->control, err);
    while (st == STATUS_OK && healthy < agents) {
        if (process_interrupted() || process_now_us() > end_us)
            return error_set(err, STATUS_DEADLINE, "%u of %u agents are healthy", healthy, agents);
        st = control_nodes(stand->control, &healthy, err);
        bench_rest(stand->bench, healthy < agents ? 20 : 300);
    }
    return st;
}

enum status stand_start(struct bench *bench, uint32_t agents, uint32_t slots, struct stand **out,
                        struct error *err)
{
    SCOPED(stand_stop) struct stand *stand = NEW(struct stand);

    stand->bench = bench;
    enum status st = make_dir(stand, err);
    if (st == STATUS_OK)
        st = start_daemon(stand, agents, slots, err);
    if (st == STATUS_OK)
        st = await_daemon(stand, agents, err);
    if (st == STATUS_OK)
        *out = TAKE(stand);
    return st == STATUS_OK ? st : error_wrap(err, "start");
}

/* --- stop */

static void stop_daemon(struct stand *stand)
{
    struct process_result result;
    struct error err = {0};

    kill(stand->daemon, SIGTERM);
    int64_t end_us = process_now_us() + STOP_MS * 1000ll;
    while (!has_ended(stand->daemon) && process_now_us() < end_us)
        bench_rest(stand->bench, 20);
    if (!has_ended(stand->daemon))
        kill(stand->daemon, SIGKILL);
    (void)!process_wait(stand->daemon, 1000, &result, &err);
}

static void kill_rest(const struct stand *stand)
{
    struct family *family = NEW(struct family);

    for (int tries = 0; tries < 100; tries++) {
        family_find(stand, family);
        if (family->count == 0)
            break;
        for (size_t i = 0; i < family->count && tries > 20; i++)
            kill(family->pids[i], SIGKILL);
        bench_rest(stand->bench, 50);
    }
    mem_free(family);
}

void stand_stop(struct stand *stand)
{
    struct error err = {0};

    if (!stand)
        return;
    if (stand->control && control_clear(stand->control, &err) != STATUS_OK)
        (void)fprintf(stderr, "rondo-bench: %s\n", err.text);
    control_close(stand->control);
    if (stand->daemon > 0)
        stop_daemon(stand);
    if (stand->dir) {
        kill_rest(stand);
        if (getenv("RONDO_BENCH_KEEP"))
            (void)fprintf(stderr, "rondo-bench: kept %s\n", stand->dir);
        else if (file_remove_tree(stand->dir, &err) != STATUS_OK)
            (void)fprintf(stderr, "rondo-bench: %s\n", err.text);
    }
    mem_free(stand->dir);
    mem_free(stand->ctl);
    mem_free(stand->probe);
    mem_free(stand->points);
    mem_free(stand->fifo);
    mem_free(stand->database);
    mem_free(stand);
}
