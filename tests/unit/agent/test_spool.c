/* test_spool.c - reports on their way up: each once, in order, whatever dies; bounded when the
 * daemon is away. */
#include "agent/spool.h"
#include "agent/spool_index.h"
#include "tests/unit/agent/agent_rig.h"

/* A spool over real files, and a daemon that stores numbers. */
struct scene {
    struct loop *loop;
    struct files *files;
    struct spool *spool;
    struct loop_timer *limit, *poll;
    char *dir, *reports;
    int fd;
    int64_t step_written;
    uint64_t stored, dropped;
    int64_t steps; /* reports that came */
    int64_t step_last;
    bool deaf, late, loaded, drained, settled, (*condition)(struct scene *scene);
    int64_t step, samples;
    uint64_t bytes_max;
};

static size_t scene_send(void *arg, const Pb__BulkUp *message)
{
    struct scene *scene = arg;
    Pb__BulkUp *up = (Pb__BulkUp *)message_copy(&message->base);
    if (up->seq > scene->stored) {
        assert_int_equal(up->seq, scene->stored + 1);
        scene->stored = up->seq;
        for (size_t i = 0; i < up->n_batches; i++) {
            scene->dropped += up->batches[i]->dropped;
            for (size_t j = 0; j < up->batches[i]->n_reports; j++) {
                assert_true(up->batches[i]->reports[j]->step > scene->step_last);
                scene->step_last = up->batches[i]->reports[j]->step;
                scene->steps++;
            }
        }
    }
    pb__bulk_up__free_unpacked(up, NULL);
    return 0;
}

static void scene_progress(void *arg, const char *tag, int64_t step, int64_t samples)
{
    struct scene *scene = arg;
    (void)tag;
    scene->step = step;
    scene->samples = samples;
}
static void scene_flags(void *arg, const char *tag, bool joined, bool finished)
{
    (void)arg, (void)tag, (void)joined, (void)finished;
}
static void scene_failure(void *arg, const char *tag, const Pb__WorkerFailure *failure)
{
    (void)arg, (void)tag, (void)failure;
}
static void scene_drained(void *arg, const char *tag)
{
    (void)tag;
    ((struct scene *)arg)->drained = true;
}
static void scene_settled(void *arg, const char *tag)
{
    (void)tag;
    ((struct scene *)arg)->settled = true;
}
static const struct spool_source_events scene_events = {scene_progress, scene_flags, scene_failure,
                                                        scene_drained, scene_settled};

static void scene_loaded(void *arg, enum status st, const struct error *err)
{
    struct scene *scene = arg;
    if (st != STATUS_OK)
        fail_msg("%s", err->text);
    scene->loaded = true;
}

static void scene_poll(void *arg)
{
    struct scene *scene = arg;
    if (!scene->deaf && scene->loaded)
        spool_acked(scene->spool, scene->stored);
    if (scene->condition(scene))
        loop_uv_stop(scene->loop);
    else
        loop_timer_set(scene->poll, 2000);
}

static void scene_limit(void *arg)
{
    struct scene *scene = arg;
    scene->late = true;
    loop_uv_stop(scene->loop);
}

static void scene_until(struct scene *scene, bool (*condition)(struct scene *scene))
{
    scene->condition = condition;
    scene->late = false;
    loop_timer_set(scene->limit, RIG_LIMIT_US);
    loop_timer_set(scene->poll, 0);
    loop_uv_run(scene->loop);
    loop_timer_stop(scene->limit);
    loop_timer_stop(scene->poll);
    assert_false(scene->late);
}

static bool is_loaded(struct scene *scene)
{
    return scene->loaded;
}

static void scene_open(struct scene *scene)
{
    struct spool_options options = {
        .loop = scene->loop,
        .files = scene->files = files_uv_create(scene->loop, 2),
        .dir = scene->dir,
        .bytes_max = scene->bytes_max,
        .window = 4,
        .send = scene_send,
        .events = &scene_events,
        .arg = scene,
    };
    struct tail_key key = {7, 1, 0, 1, "trainer"};
    scene->loaded = scene->drained = scene->settled = false;
    scene->spool = spool_create(&options);
    spool_load(scene->spool, scene_loaded, scene);
    scene_until(scene, is_loaded);
    spool_source_add(scene->spool, "7.1.trainer.0.1", &key, scene->reports);
}

static void scene_crash(struct scene *scene)
{
    scene->files->ops->destroy(scene->files);
    spool_destroy(scene->spool);
}

static int scene_setup(void **state)
{
    struct scene *scene = NEW(struct scene);
    scene->loop = loop_uv_create();
    scene->dir = unit_dir_create();
    scene->reports = mem_printf("%s/reports", scene->dir);
    scene->limit = loop_timer_create(scene->loop, scene_limit, scene);
    scene->poll = loop_timer_create(scene->loop, scene_poll, scene);
    scene->fd = open(scene->reports, O_WRONLY | O_CREAT | O_APPEND, 0600);
    scene->step_last = -1;
    scene->bytes_max = (uint64_t)64 << 20;
    scene_open(scene);
    *state = scene;
    return 0;
}

static int scene_teardown(void **state)
{
    struct scene *scene = *state;
    scene_crash(scene);
    loop_timer_destroy(scene->limit);
    loop_timer_destroy(scene->poll);
    loop_uv_destroy(scene->loop);
    close(scene->fd);
    mem_free(scene->reports);
    unit_dir_destroy(scene->dir);
    mem_free(scene);
    return 0;
}

static void write_steps(struct scene *scene, int count)
{
    for (int i = 0; i < count; i++)
        worker_report(scene->fd, scene->step_written++);
    spool_kick(scene->spool, "7.1.trainer.0.1");
}

static bool all_came(struct scene *scene)
{
    return scene->steps == scene->step_written;
}
static bool is_drained(struct scene *scene)
{
    return scene->drained;
}
static bool is_settled(struct scene *scene)
{
    return scene->settled;
}
static bool two_came(struct scene *scene)
{
    return scene->stored >= 2;
}

/* --- tests */

static void crashes_lose_and_double_nothing(void **state)
{
    struct scene *scene = *state;
    for (int round = 0; round < 6; round++) {
        write_steps(scene, 3500);
        spool_up(scene->spool, scene->stored);
        scene->deaf = round % 2 == 0; /* acknowledgements that the crash swallows */
        scene_until(scene, two_came);
        scene_crash(scene);
        scene_open(scene);
    }
    scene->deaf = false;
    spool_up(scene->spool, scene->stored);
    spool_kick(scene->spool, "7.1.trainer.0.1");
    scene_until(scene, all_came);
    assert_int_equal(scene->step_last, 6 * 3500 - 1);
    assert_int_equal(scene->dropped, 0);
    assert_int_equal(scene->step, 6 * 3500 - 1);
}

static void end_is_known_while_the_daemon_is_away(void **state)
{
    struct scene *scene = *state;
    write_steps(scene, 20000); /* more than the window holds */
    spool_drain(scene->spool, "7.1.trainer.0.1");
    scene_until(scene, is_drained);
    assert_int_equal(scene->step, 19999);
    assert_int_equal(scene->steps, 0);
    spool_leave(scene->spool, "7.1.trainer.0.1");
    spool_up(scene->spool, 0);
    scene_until(scene, is_settled);
    assert_int_equal(scene->steps, 20000);
    assert_int_equal(scene->dropped, 0);
}

static bool some_dropped(struct scene *scene)
{
    struct spool_counts counts;
    spool_counts(scene->spool, &counts);
    return counts.dropped > 0;
}

static void too_much_is_thinned_and_counted(void **state)
{
    struct scene *scene = *state;
    scene_crash(scene);
    scene->bytes_max = (uint64_t)1 << 20;
    scene_open(scene);
    write_steps(scene, 60000); /* some 3 MiB */
    scene_until(scene, some_dropped);
    spool_leave(scene->spool, "7.1.trainer.0.1");
    scene_crash(scene); /* thinned messages survive, too */
    scene_open(scene);
    spool_leave(scene->spool, "7.1.trainer.0.1");
    spool_up(scene->spool, 0);
    scene_until(scene, is_settled);
    assert_true(scene->dropped > 0);
    assert_int_equal((uint64_t)scene->steps + scene->dropped, 60000);
    assert_true(scene->step_last > 59900);
}

static void torn_index_line_is_cut_off(void **state)
{
    struct scene *scene = *state;
    write_steps(scene, 100);
    spool_up(scene->spool, 0);
    scene_until(scene, all_came);
    scene_crash(scene);
    FILE *index = fopen(unit_path(scene->dir, "index"), "a");
    fprintf(index, "0badc0de e 2 0 1 7.1.tra");
    fclose(index);
    scene_open(scene);
    write_steps(scene, 100);
    spool_up(scene->spool, scene->stored);
    scene_until(scene, all_came);
    scene_crash(scene);
    scene_open(scene);
    assert_int_equal(scene->step, 199);
}

static void broken_record_ends_the_file_with_a_count(void **state)
{
    struct scene *scene = *state;
    write_steps(scene, 10);
    assert_int_equal(write(scene->fd, "\5\0\0\0wrongbytes-and-more", 23), 23);
    spool_drain(scene->spool, "7.1.trainer.0.1");
    scene_until(scene, is_drained);
    spool_leave(scene->spool, "7.1.trainer.0.1");
    spool_up(scene->spool, 0);
    scene_until(scene, is_settled);
    assert_int_equal(scene->steps, 10);
}

static void parse_nothing(void *arg, uint64_t seq, bool thinned, const struct spool_piece *pieces,
                          size_t count)
{
    (void)arg, (void)seq, (void)thinned, (void)pieces, (void)count;
}
static void parse_acked(void *arg, uint64_t seq)
{
    *(uint64_t *)arg = seq;
}
static void parse_base(void *arg, const struct spool_piece *base)
{
    (void)arg, (void)base;
}
static void parse_forget(void *arg, const char *tag)
{
    (void)arg, (void)tag;
}

static void each_damaged_line_of_the_index_is_seen(void **state)
{
    static const struct spool_index_events events = {parse_nothing, parse_acked, parse_base,
                                                     parse_forget};
    struct spool_piece piece = {.tag = "1.1.a.0.1", .from = 3, .to = 9, .count = 2, .step = -1};
    struct text out;
    uint64_t acked = 0;
    (void)state;
    text_init(&out, 0);
    spool_index_entry(&out, 5, false, &piece, 1);
    spool_index_base(&out, &piece);
    spool_index_forget(&out, "1.1.a.0.1");
    spool_index_acked(&out, 5);
    assert_int_equal(spool_index_parse(text_get(&out), out.len, &events, &acked), out.len);
    assert_int_equal(acked, 5);
    for (size_t i = 0; i < out.len; i++) {
        char kept = out.data[i];
        out.data[i] = (char)(kept ^ 1);
        assert_true(spool_index_parse(out.data, out.len, &events, &acked) < out.len);
        out.data[i] = kept;
    }
    text_fini(&out);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, scene_setup, scene_teardown)
    const struct CMUnitTest tests[] = {
        T(crashes_lose_and_double_nothing),
        T(end_is_known_while_the_daemon_is_away),
        T(too_much_is_thinned_and_counted),
        T(torn_index_line_is_cut_off),
        T(broken_record_ends_the_file_with_a_count),
        cmocka_unit_test(each_damaged_line_of_the_index_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
