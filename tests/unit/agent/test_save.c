/* test_save.c - checkpoints: watched directories, seals, deletions, resume points. */
#include "checkpoint/vault.h"
#include "tests/unit/agent/agent_rig.h"
#include <sys/socket.h>
#include <sys/un.h>

static int worker_watched(void)
{
    const char *dir = getenv("RONDO_ATTEMPT_DIR");
    if (!dir)
        return 3;
    if (mkdir(unit_path(dir, "step-5"), 0755) != 0)
        return 4;
    unit_write(unit_path(dir, "step-5/w"), "weights");
    unit_write(unit_path(dir, "step-5/DONE"), "");
    return 0;
}

static bool read_all(int fd, uint8_t *out, size_t len)
{
    for (ssize_t n; len > 0; out += n, len -= (size_t)n)
        if ((n = read(fd, out, len)) <= 0)
            return false;
    return true;
}

/* Gives up one step after another until the agent will not hear more. */
static int worker_greedy(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "sock"};
    const char *dir = getenv("RONDO_DIR");
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (!dir || chdir(dir) != 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        return 3;
    for (int step = 1; step < 2000; step++) {
        uint8_t bytes[4096] = {0};
        Pb__WorkerAsk ask = PB__WORKER_ASK__INIT;
        ask.has_number = ask.has_kind = ask.has_step = true;
        ask.number = 1;
        ask.step = step;
        ask.kind = PB__WORKER_ASK__KIND__ABORT_SAVE;
        bytes[0] = (uint8_t)pb__worker_ask__pack(&ask, bytes + 4);
        if (write(fd, bytes, bytes[0] + 4u) != bytes[0] + 4)
            return 4;
        if (!read_all(fd, bytes, 4) || !read_all(fd, bytes + 4, bytes[0]))
            return 5;
        Pb__WorkerAnswer *answer = pb__worker_answer__unpack(NULL, bytes[0], bytes + 4);
        const bool refused = answer && answer->status == STATUS_EXHAUSTED;
        if (!answer)
            return 6;
        pb__worker_answer__free_unpacked(answer, NULL);
        if (refused)
            return step > 1000 ? 0 : 8;
    }
    return 7;
}

/* A file as long as a file can be, without a byte written: reading it would take hours. */
static int worker_endless(void)
{
    const char *dir = getenv("RONDO_ATTEMPT_DIR");
    if (!dir || mkdir(unit_path(dir, "step-5"), 0755) != 0)
        return 3;
    int fd = open(unit_path(dir, "step-5/w"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)15 << 40) != 0)
        return 4;
    unit_write(unit_path(dir, "step-5/DONE"), "");
    return 0;
}

static bool is_staged(struct rig *rig)
{
    return rig->staged && rig_is_exited(rig);
}

static void watched_checkpoint_is_staged_before_the_end(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "watched",
             "  checkpoint: {writers: RANK_ZERO, watch: {pattern: 'step-{step}', marker: DONE}}\n");
    rig_until(rig, is_staged);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
    assert_null(rig->staged->error);
    assert_int_equal(rig->staged->step, 5);
    assert_int_equal(rig->staged->part->n_files, 2);
    assert_int_equal(rig->staged_count, 1);
}

static size_t staged_wanted;
static bool staged_came_again(struct rig *rig)
{
    return rig->staged_count >= staged_wanted;
}

static void unacknowledged_part_is_told_again_after_a_reconnect_and_a_restart(void **state)
{
    struct rig *rig = *state;
    rig->deaf = true;
    rig_want(rig, "watched",
             "  checkpoint: {writers: RANK_ZERO, watch: {pattern: 'step-{step}', marker: DONE}}\n");
    rig_until(rig, is_staged);
    staged_wanted = rig->staged_count + 1;
    rig->uplink.ops->close(&rig->uplink, UPLINK_CONTROL);
    rig_until(rig, staged_came_again);
    rig_stop_agent(rig);
    staged_wanted = rig->staged_count + 1;
    rig_start_agent(rig);
    rig_until(rig, staged_came_again);
    assert_null(rig->staged->error);
}

static bool is_sealed(struct rig *rig)
{
    return rig->sealed[0] != '\0';
}
static bool is_deleted(struct rig *rig)
{
    return rig->deleted == 44;
}

static void seal_and_delete_are_done_and_told(void **state)
{
    struct rig *rig = *state;
    char dir[512], digest[65];
    struct text manifest;
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    Pb__DesiredSeal seal = PB__DESIRED_SEAL__INIT, *seals[] = {&seal};
    Pb__DesiredDelete delete = PB__DESIRED_DELETE__INIT, *deletes[] = {&delete};
    Pb__CheckpointPart *part = NULL;
    const char *vault = unit_path(rig->dir, "vault");
    assert_int_equal(
        vault_part_create(vault, "job-7/step-5.1", "trainer", 0, -1, -1, dir, sizeof(dir), NULL),
        STATUS_OK);
    unit_write(unit_path(dir, "w"), "weights");
    assert_int_equal(vault_part_digest(vault, "job-7/step-5.1", "trainer", 0, NULL, &part, NULL),
                     STATUS_OK);
    checkpoint.parts = &part;
    checkpoint.n_parts = 1;
    text_init(&manifest, 0);
    vault_manifest_build(&checkpoint, &manifest, digest);
    seal.has_checkpoint = delete.has_checkpoint = true;
    seal.checkpoint = delete.checkpoint = 44;
    seal.vault = delete.vault = (char *)(uintptr_t) "main";
    seal.path = delete.path = (char *)(uintptr_t) "job-7/step-5.1";
    seal.has_manifest = true;
    seal.manifest.data = (uint8_t *)manifest.data;
    seal.manifest.len = manifest.len;
    rig->desired.seals = seals;
    rig->desired.n_seals = 1;
    rig_until(rig, is_sealed);
    assert_string_equal(rig->sealed, digest);
    assert_int_equal(
        vault_verify(unit_path(rig->dir, "vault"), "job-7/step-5.1", digest, true, NULL),
        STATUS_OK);
    rig->desired.n_seals = 0;
    rig->desired.deletes = deletes;
    rig->desired.n_deletes = 1;
    rig_say_desired(rig);
    rig_until(rig, is_deleted);
    assert_int_not_equal(access(unit_path(rig->dir, "vault/job-7/step-5.1"), F_OK), 0);
    rig->desired.n_deletes = 0;
    text_fini(&manifest);
    pb__checkpoint_part__free_unpacked(part, NULL);
}

/* M49: what cannot be seen is not called damaged. */
static void a_vault_that_is_away_is_no_bad_checkpoint(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "ok",
             "  resume: {checkpoint: 3, step: 9, vault: main, path: job-7/step-9.1, "
             "manifest_digest: 00}\n");
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->class_, PB__REASON__CODE__SOURCE_LOST);
    assert_non_null(strstr(rig_worker(rig, 0)->message, "is it mounted?"));
}

static void bad_resume_point_fails_the_launch_clearly(void **state)
{
    struct rig *rig = *state;
    (void)mkdir(unit_path(rig->dir, "vault"), 0700);
    assert_int_equal(mkdir(unit_path(rig->dir, "vault/job-1"), 0700), 0);
    rig_want(rig, "ok",
             "  resume: {checkpoint: 3, step: 9, vault: main, path: job-7/step-9.1, "
             "manifest_digest: 00}\n");
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->class_, PB__REASON__CODE__CHECKPOINT_ERROR);
    assert_non_null(strstr(rig_worker(rig, 0)->message, "not good"));
}

static bool is_stopping(struct rig *rig)
{
    const Pb__ActualWorker *worker = rig_worker(rig, 0);
    return worker && worker->state == PB__ACTUAL_WORKER__STATE__STOPPING;
}

static void a_stop_that_means_now_gives_up_what_is_being_read(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "endless",
             "  checkpoint: {writers: RANK_ZERO, watch: {pattern: 'step-{step}', marker: DONE}}\n");
    rig_until(rig, is_stopping);
    rig->wanted[0]->want = PB__DESIRED_WORKER__WANT__STOP;
    rig->wanted[0]->has_grace_ms = true;
    rig->wanted[0]->grace_ms = 1;
    rig_say_desired(rig);
    rig_until(rig, is_staged);
    assert_non_null(strstr(rig->staged->error, "stopped"));
    assert_true(rig_is_exited(rig));
}

static void saves_that_nobody_acknowledged_are_bounded(void **state)
{
    struct rig *rig = *state;
    rig->deaf = true;
    rig_want(rig, "greedy", "");
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return strcmp(argv[2], "watched") == 0   ? worker_watched()
               : strcmp(argv[2], "greedy") == 0  ? worker_greedy()
               : strcmp(argv[2], "endless") == 0 ? worker_endless()
                                                 : 0;
    }
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(watched_checkpoint_is_staged_before_the_end),
        T(unacknowledged_part_is_told_again_after_a_reconnect_and_a_restart),
        T(seal_and_delete_are_done_and_told),
        T(a_vault_that_is_away_is_no_bad_checkpoint),
        T(bad_resume_point_fails_the_launch_clearly),
        T(a_stop_that_means_now_gives_up_what_is_being_read),
        T(saves_that_nobody_acknowledged_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
