/* test_agent.c - the agent core with real processes: a worker's whole life, an agent's death. */
#include "tests/unit/agent/agent_rig.h"
#include "worker/page.h"
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* --- workers */

static struct page *map_page(void)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/page", getenv("RONDO_DIR"));
    int fd = open(path, O_RDWR);
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return page == MAP_FAILED ? NULL : page;
}

static int ask(Pb__WorkerAsk__Kind kind, int64_t step, char *dir, size_t cap)
{
    char path[512];
    uint8_t bytes[4096];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    Pb__WorkerAsk message = PB__WORKER_ASK__INIT;
    snprintf(path, sizeof(path), "%s", getenv("RONDO_DIR"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), at = open(path, O_RDONLY | O_DIRECTORY);
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/sock", at);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        return -1;
    message.has_protocol = message.has_number = message.has_kind = message.has_step = true;
    message.has_samples = true;
    message.protocol = 1;
    message.number = 5;
    message.kind = kind;
    message.step = step;
    message.samples = step * 8;
    size_t len = pb__worker_ask__pack(&message, bytes + 4);
    put_u32(bytes, (uint32_t)len);
    if (write(fd, bytes, len + 4) < 0 || read(fd, bytes, 4) != 4)
        return -1;
    len = bytes[0] | (size_t)bytes[1] << 8;
    if (read(fd, bytes, len) != (ssize_t)len)
        return -1;
    Pb__WorkerAnswer *answer = pb__worker_answer__unpack(NULL, len, bytes);
    int status = answer ? answer->status : -1;
    if (answer && answer->dir && dir)
        snprintf(dir, cap, "%s", answer->dir);
    if (answer)
        pb__worker_answer__free_unpacked(answer, NULL);
    close(fd);
    close(at);
    return status;
}

static int worker_steps(int count)
{
    int fd = worker_reports_open();
    struct page *page = map_page();
    for (int step = 1; step <= count; step++) {
        worker_report(fd, step);
        atomic_store(&page->reports, (uint64_t)step);
    }
    Pb__WorkerRecord end = PB__WORKER_RECORD__INIT;
    end.has_finished = end.finished = true;
    worker_append(fd, &end);
    return 0;
}

static int worker_saves(void)
{
    char dir[4096], path[4200];
    if (ask(PB__WORKER_ASK__KIND__JOIN, 0, NULL, 0) != 0 ||
        ask(PB__WORKER_ASK__KIND__SAVE_DIR, 10, dir, sizeof(dir)) != 0)
        return 3;
    snprintf(path, sizeof(path), "%s/model", dir);
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    if (fd < 0 || write(fd, "weights", 7) != 7 || close(fd) != 0)
        return 4;
    return ask(PB__WORKER_ASK__KIND__COMMIT, 10, NULL, 0) == 0 ? 0 : 5;
}

static void on_term(int signo)
{
    (void)signo;
    struct page *page = map_page();
    atomic_store(&page->saving, 1);
    usleep(700000); /* longer than its grace */
    atomic_store(&page->saving, 0);
    _exit(0);
}

static int worker_slow_stop(void)
{
    signal(SIGTERM, on_term);
    atomic_store(&map_page()->joined, 1);
    while (pause() < 0)
        ;
    return 0;
}

/* Deaf to TERM, saves and trains in turn for ever. */
static int worker_saves_on(void)
{
    struct page *page = map_page();
    signal(SIGTERM, SIG_IGN);
    atomic_store(&page->joined, 1);
    for (int saving = 1; usleep(150000) == 0; saving = !saving)
        atomic_store(&page->saving, (uint32_t)saving);
    return 0;
}

static int worker_gate(void)
{
    struct page *page = map_page();
    for (int64_t step = 1;; step++) {
        atomic_store(&page->save_answered, step);
        atomic_store(&page->joined, 1);
        if (atomic_load(&page->save.number) == 1 && atomic_load(&page->save.step) <= step &&
            atomic_load(&page->save.phase) == PAGE_ARM)
            return step >= 1000 ? 0 : 6;
        usleep(200);
    }
}

/* Joins, then needs longer for its first step than any step may take. */
static int worker_warms_up(void)
{
    int fd = worker_reports_open();
    struct page *page = map_page();
    Pb__WorkerRecord joined = PB__WORKER_RECORD__INIT;
    joined.has_joined = joined.joined = true;
    worker_append(fd, &joined);
    atomic_store(&page->reports, 1);
    atomic_store(&page->joined, 1);
    usleep(800000);
    return 0;
}

static int worker_main(const char *mode)
{
    if (strcmp(mode, "ok") == 0)
        return 0;
    if (strcmp(mode, "warms-up") == 0)
        return worker_warms_up();
    if (strcmp(mode, "steps") == 0)
        return worker_steps(5000);
    if (strcmp(mode, "saves") == 0)
        return worker_saves();
    if (strcmp(mode, "slow-stop") == 0)
        return worker_slow_stop();
    if (strcmp(mode, "saves-on") == 0)
        return worker_saves_on();
    if (strcmp(mode, "gate") == 0)
        return worker_gate();
    if (strcmp(mode, "steps-then-wait") == 0) {
        (void)worker_steps(3000);
        while (pause() < 0)
            ;
    }
    if (strcmp(mode, "fail") == 0) {
        fprintf(stderr, "Traceback (most recent call last):\n  line 1\nValueError: it is so\n");
        return 7;
    }
    if (strcmp(mode, "cwd") == 0) {
        char line[64] = "";
        FILE *file = fopen("hello.txt", "r");
        if (!file || !fgets(line, sizeof(line), file))
            return 8;
        return strcmp(line, "hello") == 0 ? 0 : 9;
    }
    while (pause() < 0)
        ;
    return 0;
}

/* --- tests */

static void worker_runs_and_is_reported_with_its_end(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "ok", NULL);
    rig_until(rig, rig_is_exited);
    const Pb__ActualWorker *worker = rig_worker(rig, 0);
    assert_int_equal(worker->exit_code, 0);
    assert_false(worker->has_class_);
    assert_true(worker->pid > 0);
}

static bool logs_came(struct rig *rig)
{
    return rig->chunk != NULL;
}

static void ask_log(struct rig *rig, bool stderr_wanted, int64_t offset)
{
    Pb__BulkDown down = PB__BULK_DOWN__INIT;
    Pb__LogAsk log = PB__LOG_ASK__INIT;
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;
    key.has_job = key.has_rank = key.has_attempt = true;
    key.job = 7;
    key.role = (char *)(uintptr_t) "trainer";
    key.attempt = 1;
    log.key = &key;
    log.has_ask = log.has_stderr_ = log.has_offset = true;
    log.ask = 77;
    log.stderr_ = stderr_wanted;
    log.offset = offset;
    down.log = &log;
    rig->events->bulk(rig->events_arg, &down);
}

/* Its directory has moved and the agent knows it. */
static bool is_let_go(struct rig *rig)
{
    return rig->gone > 0;
}

static void forgotten_worker_leaves_its_logs(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "fail", NULL);
    rig_until(rig, rig_is_exited);
    const Pb__ActualWorker *worker = rig_worker(rig, 0);
    assert_int_equal(worker->exit_code, 7);
    assert_int_equal(worker->class_, PB__REASON__CODE__USER_ERROR);
    assert_string_equal(worker->message, "ValueError: it is so");
    assert_non_null(strstr(worker->traceback, "Traceback"));
    rig_unwant(rig);
    rig_say_desired(rig);
    rig_until(rig, is_let_go);
    rig_until(rig, rig_is_up);
    ask_log(rig, true, -6);
    rig_until(rig, logs_came);
    assert_int_equal(rig->chunk->data.len, 6);
    assert_memory_equal(rig->chunk->data.data, "is so\n", 6);
    assert_true(rig->chunk->closed);
}

static void missing_program_names_path_and_reason(void **state)
{
    struct rig *rig = *state;
    Pb__DesiredWorker *wish = rig_want(rig, "ok", NULL);
    free(wish->launch->command[0]);
    wish->launch->command[0] = strdup("/nowhere/program");
    rig_until(rig, rig_is_exited);
    const Pb__ActualWorker *worker = rig_worker(rig, 0);
    assert_int_equal(worker->class_, PB__REASON__CODE__LAUNCH_FAILED);
    assert_non_null(strstr(worker->message, "/nowhere/program"));
    assert_false(worker->has_exit_code || worker->has_signal || worker->has_step);
}

static bool all_reports_came(struct rig *rig)
{
    return rig->reports >= 5000 && rig_is_exited(rig);
}

static void check_points(struct rig *rig, int count)
{
    const char *at = text_get(&rig->points);
    for (int step = 1; step <= count; step++) {
        char line[64];
        snprintf(line, sizeof(line), "%d %d\n", step, step * 8);
        assert_memory_equal(at, line, strlen(line));
        at += strlen(line);
    }
    assert_int_equal(*at, 0);
}

static void every_report_goes_up_once_and_in_order(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "steps", NULL);
    rig_until(rig, all_reports_came);
    check_points(rig, 5000);
    assert_int_equal(rig_worker(rig, 0)->step, 5000);
    assert_int_equal(rig_worker(rig, 0)->samples, 40000);
    assert_true(rig_worker(rig, 0)->finished);
}

static bool some_reports_came(struct rig *rig)
{
    return rig->reports >= 1000;
}

static bool three_thousand_came(struct rig *rig)
{
    return rig->reports >= 3000 && rig_is_running(rig);
}

static void agent_dies_worker_runs_on_nothing_is_lost_or_doubled(void **state)
{
    struct rig *rig = *state;
    rig->deaf = true; /* stored, but the acknowledgement is lost with the agent */
    rig_want(rig, "steps-then-wait", NULL);
    rig_until(rig, some_reports_came);
    rig_until(rig, rig_is_running);
    int pid = rig_worker(rig, 0)->pid;
    rig_stop_agent(rig);
    rig->deaf = false;
    rig_start_agent(rig);
    rig_until(rig, three_thousand_came);
    check_points(rig, 3000);
    assert_int_equal(rig_worker(rig, 0)->pid, pid);
    assert_int_equal(kill(pid, 0), 0);
    rig_unwant(rig);
    rig_say_desired(rig);
    rig_until(rig, rig_is_empty);
    assert_int_not_equal(kill(pid, 0), 0);
}

static bool is_joined(struct rig *rig)
{
    return rig_is_running(rig) && rig_worker(rig, 0)->joined;
}

static void stop_waits_while_the_worker_saves(void **state)
{
    struct rig *rig = *state;
    Pb__DesiredWorker *wish =
        rig_want(rig, "slow-stop", "  grace_ms: 200\n  grace_ms_max: 30000\n");
    rig_until(rig, is_joined); /* its handler is set */
    wish->want = PB__DESIRED_WORKER__WANT__STOP;
    rig_say_desired(rig);
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
    assert_int_equal(rig_worker(rig, 0)->signal, 0);
}

static void saving_for_ever_is_no_way_to_stay(void **state) /* M12 */
{
    struct rig *rig = *state;
    Pb__DesiredWorker *wish =
        rig_want(rig, "saves-on", "  grace_ms: 200\n  grace_ms_max: 600000\n");
    rig_until(rig, is_joined);
    wish->want = PB__DESIRED_WORKER__WANT__STOP;
    rig_say_desired(rig);
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->signal, SIGKILL);
}

static void kill_ends_at_once(void **state)
{
    struct rig *rig = *state;
    Pb__DesiredWorker *wish = rig_want(rig, "slow-stop", NULL);
    rig_until(rig, rig_is_running);
    wish->want = PB__DESIRED_WORKER__WANT__KILL;
    rig_say_desired(rig);
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->signal, SIGKILL);
    assert_int_equal(rig_worker(rig, 0)->class_, PB__REASON__CODE__ASKED);
}

static void silent_worker_hangs(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "wait", "  phases: {first_step_ms: 300}\n");
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->class_, PB__REASON__CODE__HANG);
}

static void warm_up_is_no_step(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "warms-up", "  phases: {first_step_ms: 600000, step_ms: 200}\n");
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
    assert_false(rig_worker(rig, 0)->has_class_);
}

static bool is_staged(struct rig *rig)
{
    return rig->staged != NULL && rig_is_exited(rig);
}

static void commit_is_digested_and_staged_before_the_end(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "saves", NULL);
    rig_until(rig, is_staged);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
    assert_null(rig->staged->error);
    assert_int_equal(rig->staged->step, 10);
    assert_int_equal(rig->staged->part->samples, 80);
    assert_int_equal(rig->staged->part->n_files, 1);
    assert_string_equal(rig->staged->part->files[0]->path, "trainer-0/model");
    assert_string_equal(rig->staged->path, "job-7/step-10.1");
}

static bool is_bound(struct rig *rig)
{
    return rig_worker(rig, 0)->gate_number == 1;
}

static void gate_binds_and_opens(void **state)
{
    struct rig *rig = *state;
    Pb__DesiredWorker *wish = rig_want(rig, "gate", NULL);
    rig_until(rig, is_joined);
    Pb__Gate gate = PB__GATE__INIT;
    gate.has_number = gate.has_kind = gate.has_phase = gate.has_step = true;
    gate.number = 1;
    gate.kind = PB__GATE__KIND__SAVE;
    gate.phase = PB__GATE__PHASE__PREPARE;
    gate.step = 100000; /* far: it is bound whatever the machine's speed */
    wish->gate = &gate;
    rig_say_desired(rig);
    rig_until(rig, is_bound);
    assert_int_equal(rig_worker(rig, 0)->gate_phase, PB__GATE__PHASE__PREPARE);
    wish->gate = NULL; /* borrowed */
}

static bool is_unkillable(struct rig *rig)
{
    return rig_is(rig, PB__ACTUAL_WORKER__STATE__UNKILLABLE);
}

static void held_device_keeps_the_worker_from_being_gone(void **state)
{
    struct rig *rig = *state;
    rig->held = true;
    rig_want(rig, "ok", NULL);
    rig_until(rig, is_unkillable);
    rig->held = false;
    rig_until(rig, rig_is_exited);
}

static bool has_closed(struct rig *rig)
{
    return !rig->open[UPLINK_CONTROL];
}

static void older_term_is_refused_also_after_a_restart(void **state)
{
    struct rig *rig = *state;
    rig->term = 5;
    rig_until(rig, rig_is_up);
    rig_stop_agent(rig);
    rig->term = 4;
    unsigned hellos = rig->hellos;
    rig_want(rig, "ok", NULL);
    rig_start_agent(rig);
    while (rig->hellos < hellos + 2)
        rig_until(rig, has_closed);
    assert_null(rig_worker(rig, 0));
    rig->term = 5;
    rig_until(rig, rig_is_exited);
}

static void cut_off_worker_stops_only_when_its_job_says_so(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "wait", "  on_unreachable: STOP\n");
    rig_want(rig, "wait", "  on_unreachable: RUN_ON\n");
    rig_until(rig, rig_is_running);
    rig->away = true;
    rig->uplink.ops->close(&rig->uplink, UPLINK_CONTROL);
    rig_until(rig, has_closed);
    usleep(2500000); /* past the lease */
    rig->away = false;
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 1)->state, PB__ACTUAL_WORKER__STATE__RUNNING);
    rig_unwant(rig);
    rig_say_desired(rig);
    rig_until(rig, rig_is_empty);
}

static void reboot_makes_workers_lost(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "wait", NULL);
    rig_until(rig, rig_is_running);
    int pid = rig_worker(rig, 0)->pid;
    rig_stop_agent(rig);
    kill(pid, SIGKILL);
    rig->options.boot_id = "boot-2";
    rig_start_agent(rig);
    while (!rig_is(rig, PB__ACTUAL_WORKER__STATE__LOST))
        rig_until(rig, rig_is_up);
    assert_int_equal(rig_worker(rig, 0)->class_, PB__REASON__CODE__NODE_LOST);
}

static bool spares_are_made(struct rig *rig)
{
    return access(unit_path(rig->dir, "state/spare/16/err"), F_OK) == 0;
}

/* Names that a start does not use would be made in vain, and kept. */
static void a_start_uses_all_that_was_made_in_advance(void **state)
{
    struct rig *rig = *state;
    rig_until(rig, spares_are_made);
    (void)rig_want(rig, "wait", "");
    rig_say_desired(rig);
    rig_until(rig, rig_is_running);
    assert_int_equal(access(unit_path(rig->dir, "state/spare/1"), F_OK), -1);
    SCOPED_TEXT char *dir = mem_printf("%s/state/work/7.1.trainer.0.1", rig->dir);
    struct files_batch *batch = files_batch_create();
    (void)files_step_add(batch, FILES_LIST, dir);
    assert_int_equal(files_disk_run(batch, NULL), STATUS_OK);
    for (size_t i = 0; i < batch->steps[0].names_count; i++)
        assert_true(strcmp(batch->steps[0].names[i], "pid.tmp") != 0 &&
                    strstr(batch->steps[0].names[i], ".new") == NULL);
    files_batch_destroy(batch);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return worker_main(argv[2]);
    }
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(worker_runs_and_is_reported_with_its_end),
        T(a_start_uses_all_that_was_made_in_advance),
        T(forgotten_worker_leaves_its_logs),
        T(missing_program_names_path_and_reason),
        T(every_report_goes_up_once_and_in_order),
        T(agent_dies_worker_runs_on_nothing_is_lost_or_doubled),
        T(stop_waits_while_the_worker_saves),
        T(saving_for_ever_is_no_way_to_stay),
        T(kill_ends_at_once),
        T(silent_worker_hangs),
        T(warm_up_is_no_step),
        T(commit_is_digested_and_staged_before_the_end),
        T(gate_binds_and_opens),
        T(held_device_keeps_the_worker_from_being_gone),
        T(older_term_is_refused_also_after_a_restart),
        T(cut_off_worker_stops_only_when_its_job_says_so),
        T(reboot_makes_workers_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
