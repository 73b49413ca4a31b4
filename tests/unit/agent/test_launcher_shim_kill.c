/* test_launcher_shim_kill.c - ends: kill, strays, adoption by a later agent, a lost shim. After
 * each of them nothing of the worker is left. */
#include "agent/launcher_shim_wire.h"
#include "tests/unit/agent/launcher_fixture.h"

#define FAMILY 126

static void assert_dead(pid_t pid)
{
    struct stray now;
    if (stray_read(pid, &now) && stray_is_alive(pid, now.start))
        fail_msg("process %d lives", (int)pid);
}

/* The pids that the worker `family` wrote to its stdout, one a line of 8 bytes. */
static void assert_family_is_dead(const struct worker *worker)
{
    char *out = worker_file(worker, "out", NULL);
    int seen = 0;
    for (char *at = out; *at; at += 8, seen++)
        assert_dead((pid_t)strtol(at, NULL, 10));
    assert_int_equal(seen, FAMILY);
    mem_free(out);
    assert_int_equal(worker_survivors(worker), 0);
}

/* The last of those in between may still be on its way out. */
static void assert_family_is_whole(const struct worker *worker)
{
    size_t count = 0;
    for (int i = 0; i < 6000 && (count = worker_survivors(worker)) != FAMILY + 1; i++)
        usleep(10000);
    assert_int_equal(count, FAMILY + 1);
}

static void read_pids(const struct worker *worker, struct launcher_shim_pid *ids)
{
    size_t len = 0;
    char *bytes = worker_file(worker, "pid", &len);
    assert_int_equal(launcher_shim_wire_pid(bytes, len, ids, NULL), STATUS_OK);
    mem_free(bytes);
}

/* M3: data loaders that were double-forked into sessions of their own and now belong to nobody. */
static void m3_children_of_nobody_die_at_kill(void **state)
{
    struct worker worker;
    worker_start_self(&worker, *state, "family", "stay");
    worker_until_out(&worker, 8 * FAMILY);
    assert_family_is_whole(&worker);
    worker_kill(&worker);
    worker_finish(&worker);
    assert_int_equal(worker.signal, SIGKILL);
    assert_false(worker.out_of_memory);
    assert_family_is_dead(&worker);
}

static void m3_children_of_nobody_die_when_the_worker_ends(void **state)
{
    struct worker worker;
    worker_start_self(&worker, *state, "family", "leave");
    worker_finish(&worker);
    assert_int_equal(worker.exit_code, 9);
    assert_family_is_dead(&worker);
}

/* A copy of the agent that starts a worker and is killed. */
static pid_t lost_agent(struct fixture *fixture, struct worker *worker, const char *name,
                        const char *arg)
{
    char dir[512];
    int status = 0;
    worker_init(worker, fixture);
    pid_t agent = fork();
    assert_true(agent >= 0);
    if (agent == 0) {
        execl(fixture->self, fixture->self, "--worker", "agent", worker->dir, worker->tag, name,
              arg, (char *)NULL);
        _exit(1);
    }
    snprintf(dir, sizeof(dir), "%s/pid", worker->dir);
    for (int i = 0; access(dir, F_OK) != 0 && i < 12000; i++)
        fixture_run(fixture, 10000);
    kill(agent, SIGKILL);
    assert_int_equal(waitpid(agent, &status, 0), agent);
    assert_true(WIFSIGNALED(status));
    return agent;
}

/* M1: what an earlier agent started is killed whole by the next. */
static void m1_cancel_after_an_agents_death_leaves_no_survivor(void **state)
{
    struct fixture *fixture = *state;
    struct worker worker, again;
    lost_agent(fixture, &worker, "family", "stay");
    worker_until_out(&worker, 8 * FAMILY);
    worker_adopt(&again, fixture, worker.dir, worker.tag);
    worker_until(&again, LAUNCHER_STARTED);
    assert_family_is_whole(&again);
    worker_kill(&again);
    worker_finish(&again);
    assert_true(again.told[LAUNCHER_EXITED]);
    assert_family_is_dead(&again);
}

static void worker_runs_on_without_its_agent(void **state)
{
    struct fixture *fixture = *state;
    struct launcher_shim_pid ids;
    struct worker worker, again;
    lost_agent(fixture, &worker, "wait", NULL);
    worker_until_out(&worker, 2);
    read_pids(&worker, &ids);
    assert_true(stray_is_alive(ids.shim, ids.shim_start));
    worker_adopt(&again, fixture, worker.dir, worker.tag);
    worker_until(&again, LAUNCHER_STARTED);
    assert_int_equal(again.pid, ids.worker);
    again.proc->ops->signal(again.proc, SIGTERM);
    worker_finish(&again);
    assert_int_equal(again.exit_code, 42);
    assert_int_equal(worker_survivors(&again), 0);
}

static void what_was_missed_is_told_again(void **state)
{
    struct fixture *fixture = *state;
    struct worker worker, again;
    worker_start_shell(&worker, fixture, "exit 7");
    worker_until(&worker, LAUNCHER_GONE);
    worker_adopt(&again, fixture, worker.dir, worker.tag);
    worker_finish(&again);
    worker_forget(&worker);
    assert_int_equal(again.order[0], LAUNCHER_STARTED);
    assert_int_equal(again.order[1], LAUNCHER_EXITED);
    assert_int_equal(again.order[2], LAUNCHER_GONE);
    assert_int_equal(again.exit_code, 7);
    assert_int_equal(again.pid, worker.pid);
}

static void a_start_that_failed_is_told_again(void **state)
{
    struct fixture *fixture = *state;
    struct worker worker, again;
    const char *const argv[] = {"/no/such/program", NULL};
    worker_start(&worker, fixture, (struct launcher_request){.argv = argv});
    worker_finish(&worker);
    worker_adopt(&again, fixture, worker.dir, worker.tag);
    worker_finish(&again);
    assert_int_equal(again.order[0], LAUNCHER_FAILED);
    assert_int_equal(again.count, 2);
}

static void forgotten_workers_run_on(void **state)
{
    struct fixture *fixture = *state;
    struct worker worker, again;
    worker_start_self(&worker, fixture, "wait", NULL);
    worker_forget(&worker); /* while it is being started */
    worker_until_out(&worker, 2);
    assert_int_equal(worker.count, 0);
    worker_adopt(&again, fixture, worker.dir, worker.tag);
    worker_until(&again, LAUNCHER_STARTED);
    worker_kill(&again);
    worker_finish(&again);
    assert_int_equal(worker_survivors(&again), 0);
}

static void a_lost_shim_takes_all_along(void **state)
{
    struct launcher_shim_pid ids;
    struct worker worker;
    worker_start_self(&worker, *state, "family", "stay");
    worker_until_out(&worker, 8 * FAMILY);
    worker_until(&worker, LAUNCHER_STARTED);
    read_pids(&worker, &ids);
    kill(ids.shim, SIGKILL);
    worker_finish(&worker);
    assert_true(worker.told[LAUNCHER_SHIM_LOST]);
    assert_false(worker.told[LAUNCHER_EXITED]);
    assert_dead(ids.worker);
    assert_family_is_dead(&worker);
}

static void a_shim_lost_between_agents_takes_all_along(void **state)
{
    struct fixture *fixture = *state;
    struct launcher_shim_pid ids;
    struct worker worker, again;
    lost_agent(fixture, &worker, "family", "stay");
    worker_until_out(&worker, 8 * FAMILY);
    read_pids(&worker, &ids);
    kill(ids.shim, SIGKILL);
    worker_adopt(&again, fixture, worker.dir, worker.tag);
    worker_finish(&again);
    assert_true(again.told[LAUNCHER_SHIM_LOST]);
    assert_family_is_dead(&again);
}

static void a_stopped_shim_is_killed_too(void **state)
{
    struct launcher_shim_pid ids;
    struct worker worker;
    worker_start_self(&worker, *state, "wait", NULL);
    worker_until_out(&worker, 2);
    worker_until(&worker, LAUNCHER_STARTED);
    read_pids(&worker, &ids);
    kill(ids.shim, SIGSTOP);
    worker_kill(&worker);
    worker_finish(&worker);
    assert_int_equal(worker.signal, SIGKILL);
}

static void kill_during_the_start_ends_it(void **state)
{
    struct worker worker;
    worker_start_self(&worker, *state, "wait", NULL);
    worker_kill(&worker);
    worker_finish(&worker);
    assert_true(worker.told[LAUNCHER_EXITED] || worker.told[LAUNCHER_FAILED]);
    assert_int_equal(worker_survivors(&worker), 0);
}

static void a_directory_without_a_start_is_a_lost_worker(void **state)
{
    struct fixture *fixture = *state;
    struct worker worker, again;
    worker_init(&worker, fixture);
    worker_adopt(&again, fixture, worker.dir, worker.tag);
    worker_finish(&again);
    assert_int_equal(again.order[0], LAUNCHER_SHIM_LOST);
    assert_int_equal(again.count, 2);
}

/* Numbers of processes from before a restart of the machine say nothing. */
static void records_of_another_boot_kill_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct worker worker, again;
    char record[512];
    worker_init(&worker, fixture);
    snprintf(record, sizeof(record),
             "rondo-shim 1\nboot_id of-another-boot\nshim_pid %d\nshim_start 1\nworker_pid %d\n"
             "worker_start 1\nstarted_us 1\ntag %s\nend\n",
             (int)getpid(), (int)getppid(), worker.tag);
    unit_write(unit_path(worker.dir, "pid"), record);
    unit_write(unit_path(worker.dir, "request"), "");
    worker_adopt(&again, fixture, worker.dir, worker.tag);
    worker_finish(&again);
    assert_int_equal(again.order[0], LAUNCHER_STARTED);
    assert_int_equal(again.order[1], LAUNCHER_SHIM_LOST);
    assert_int_equal(again.order[2], LAUNCHER_GONE);
}

/* The same numbers in this boot, but other processes have them now. */
static void reused_pids_kill_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct worker worker, again;
    char record[512], *boot_id = NULL;
    size_t len = 0;
    pid_t bystander = fork();
    if (bystander == 0) {
        setsid();
        pause();
        _exit(0);
    }
    assert_int_equal(file_read("/proc/sys/kernel/random/boot_id", 64, &boot_id, &len, NULL), 0);
    worker_init(&worker, fixture);
    snprintf(record, sizeof(record),
             "rondo-shim 1\nboot_id %.36s\nshim_pid %d\nshim_start 1\nworker_pid %d\n"
             "worker_start 1\nstarted_us 1\ntag %s\nend\n",
             boot_id, (int)getpid(), (int)bystander, worker.tag);
    mem_free(boot_id);
    unit_write(unit_path(worker.dir, "pid"), record);
    unit_write(unit_path(worker.dir, "request"), "");
    worker_adopt(&again, fixture, worker.dir, worker.tag);
    worker_finish(&again);
    assert_true(again.told[LAUNCHER_SHIM_LOST]);
    assert_int_equal(kill(bystander, 0), 0);
    assert_int_equal(waitpid(bystander, NULL, WNOHANG), 0);
    kill(bystander, SIGKILL);
    waitpid(bystander, NULL, 0);
}

/* A freezer of the old kind holds a process in an uninterruptible sleep for as long as we like. */
static const char *freezer(void)
{
    static const char path[] = "/sys/fs/cgroup/freezer/rondo-unit-test";
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return NULL;
    return access(unit_path(path, "freezer.state"), W_OK) == 0 ? path : NULL;
}

static void put(const char *dir, const char *name, const char *value)
{
    int fd = open(unit_path(dir, name), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, value, strlen(value)), (int)strlen(value));
    close(fd);
}

static void unkillable_is_told_and_gone_comes_later(void **state)
{
    struct worker worker;
    char pid[32];
    const char *group = freezer();
    if (!group)
        skip();
    worker_start_self(&worker, *state, "wait", NULL);
    worker_until_out(&worker, 2);
    worker_until(&worker, LAUNCHER_STARTED);
    snprintf(pid, sizeof(pid), "%d", (int)worker.pid);
    put(group, "cgroup.procs", pid);
    put(group, "freezer.state", "FROZEN");
    worker_kill(&worker);
    worker_until(&worker, LAUNCHER_UNKILLABLE);
    assert_false(worker.told[LAUNCHER_GONE]);
    assert_non_null(strstr(worker.text, pid));
    put(group, "freezer.state", "THAWED");
    worker_finish(&worker);
    assert_int_equal(worker.signal, SIGKILL);
    rmdir(group);
}

/* --- workers */

static int work_family(bool stay)
{
    for (int i = 0; i < FAMILY; i++) {
        pid_t child = fork();
        if (child == 0) {
            setsid();
            if (fork() != 0)
                _exit(0);
            setsid();
            char line[16];
            snprintf(line, sizeof(line), "%7d\n", (int)getpid());
            if (write(1, line, 8) != 8)
                _exit(1);
            for (;;)
                pause();
        }
        waitpid(child, NULL, 0);
    }
    struct stat st;
    while (stay || fstat(1, &st) != 0 || st.st_size < 8 * FAMILY)
        usleep(1000 * (stay ? 100 : 1));
    return 9;
}

static void work_wait_term(int signo)
{
    (void)signo;
    _exit(42);
}

static int work_wait(void)
{
    signal(SIGTERM, work_wait_term);
    if (write(1, "r\n", 2) != 2)
        return 1;
    for (;;)
        pause();
}

static void work_agent_told(void *arg, struct launcher_proc *proc,
                            const struct launcher_event *event)
{
    (void)arg;
    (void)proc;
    (void)event;
}

static int work_agent(char **argv)
{
    char tag[96], self[512] = "";
    struct launcher *launcher;
    struct loop *loop = loop_uv_create();
    const struct launcher_shim_options options = {loop, RONDO_BINARY_DIR "/bin/rondo-shim", false,
                                                  0, 0};
    if (launcher_shim_create(&options, &launcher, NULL) != STATUS_OK ||
        readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return 1;
    snprintf(tag, sizeof(tag), "RONDO_WORKER=%s", argv[1]);
    const char *const worker[] = {self, "--worker", argv[2], argv[3], NULL};
    const char *const env[] = {tag, NULL};
    const struct launcher_request request = {
        .dir = argv[0], .argv = worker, .env = env, .cwd = "/", .umask = 022, .tag = argv[1]};
    launcher->ops->start(launcher, &request, work_agent_told, NULL);
    loop_uv_run(loop);
    pause();
    return 0;
}

static int work(char **argv)
{
    if (strcmp(argv[0], "family") == 0)
        return work_family(strcmp(argv[1], "stay") == 0);
    if (strcmp(argv[0], "agent") == 0)
        return work_agent(argv + 1);
    return work_wait();
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return work(argv + 2);
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
#define BARE(name)                                                                                 \
    {                                                                                              \
        "bare_" #name, name, fixture_setup_bare, fixture_teardown, NULL                            \
    } /* no cgroups */
    const struct CMUnitTest tests[] = {
        TEST(m3_children_of_nobody_die_at_kill),
        BARE(m3_children_of_nobody_die_at_kill),
        TEST(m3_children_of_nobody_die_when_the_worker_ends),
        BARE(m3_children_of_nobody_die_when_the_worker_ends),
        TEST(m1_cancel_after_an_agents_death_leaves_no_survivor),
        TEST(worker_runs_on_without_its_agent),
        TEST(what_was_missed_is_told_again),
        TEST(a_start_that_failed_is_told_again),
        TEST(forgotten_workers_run_on),
        TEST(a_lost_shim_takes_all_along),
        BARE(a_lost_shim_takes_all_along),
        TEST(a_shim_lost_between_agents_takes_all_along),
        TEST(a_stopped_shim_is_killed_too),
        BARE(a_stopped_shim_is_killed_too),
        TEST(kill_during_the_start_ends_it),
        TEST(a_directory_without_a_start_is_a_lost_worker),
        TEST(records_of_another_boot_kill_nobody),
        TEST(reused_pids_kill_nobody),
        BARE(unkillable_is_told_and_gone_comes_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
