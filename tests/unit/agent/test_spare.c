/* test_spare.c - worker directories made in advance: ready, taken once, gone with the next agent.
 */
#include "agent/files.h"
#include "agent/spare.h"
#include "base/loop.h"
#include "base/mem.h"
#include "tests/unit/unit.h"
#include <sys/stat.h>
#include <unistd.h>

struct place {
    struct loop *loop;
    struct files *files;
    struct spares *spares;
    char *dir, *spare_dir;
};

static void place_stop(void *arg)
{
    loop_uv_stop(arg);
}

static void place_run(const struct place *place, int64_t us)
{
    struct loop_timer *timer = loop_timer_create(place->loop, place_stop, place->loop);
    loop_timer_set(timer, us);
    loop_uv_run(place->loop);
    loop_timer_destroy(timer);
}

static void place_until(const struct place *place, size_t ready)
{
    for (int i = 0; i < 6000 && spares_ready(place->spares) != ready; i++)
        place_run(place, 10000);
    assert_int_equal(spares_ready(place->spares), ready);
}

static int place_setup(void **state)
{
    struct place *place = NEW(struct place);
    place->loop = loop_uv_create();
    place->files = files_uv_create(place->loop, 2);
    place->dir = unit_dir_create();
    place->spare_dir = mem_printf("%s/spare", place->dir);
    place->spares = spares_create(place->loop, place->files, place->spare_dir, 3);
    *state = place;
    return 0;
}

static int place_teardown(void **state)
{
    struct place *place = *state;
    place->files->ops->destroy(place->files);
    spares_destroy(place->spares);
    loop_uv_destroy(place->loop);
    mem_free(place->spare_dir);
    unit_dir_destroy(place->dir);
    mem_free(place);
    return 0;
}

static void each_is_given_once_and_made_again(void **state)
{
    struct place *place = *state;
    struct stat st;
    assert_null(spares_take(place->spares)); /* not begun: a start does without */
    spares_start(place->spares);
    place_until(place, 3);
    SCOPED_TEXT char *first = spares_take(place->spares);
    SCOPED_TEXT char *second = spares_take(place->spares);
    assert_string_not_equal(first, second);
    assert_int_equal(stat(first, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(unit_path(first, "tmp"), &st), 0);
    assert_int_equal(stat(unit_path(first, "out"), &st), 0);
    assert_int_equal(rename(first, unit_path(place->dir, "a")), 0);
    place_until(place, 3);
    assert_int_equal(stat(second, &st), 0); /* taken, and not made over */
}

static void what_an_earlier_agent_left_goes(void **state)
{
    struct place *place = *state;
    assert_int_equal(mkdir(place->spare_dir, 0700), 0);
    assert_int_equal(mkdir(unit_path(place->spare_dir, "1"), 0700), 0);
    unit_write(unit_path(place->spare_dir, "1/out"), "a secret");
    spares_start(place->spares);
    place_until(place, 3);
    struct stat st;
    assert_int_equal(stat(unit_path(place->spare_dir, "1/out"), &st), 0);
    assert_int_equal(st.st_size, 0);
}

/* The steps of a start: with the directory, or without it where somebody took it away. */
static void a_start_takes_it_or_makes_its_own(void **state)
{
    struct place *place = *state;
    struct stat st;
    struct error err;
    spares_start(place->spares);
    place_until(place, 3);
    for (int round = 0; round < 2; round++) {
        SCOPED_TEXT char *spare = spares_take(place->spares);
        SCOPED_TEXT char *dir = mem_printf("%s/worker-%d", place->dir, round);
        if (round == 1)
            assert_int_equal(rename(spare, unit_path(place->dir, "elsewhere")), 0);
        struct files_batch *batch = files_batch_create();
        struct files_step *step = files_step_add(batch, FILES_RENAME, spare);
        step->to = mem_strdup(dir);
        step->optional = true;
        files_dir(batch, dir, 0750)->claim = true;
        (void)files_write(batch, unit_path(dir, "launch"), "abc", 3, 0600);
        if (files_disk_run(batch, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(batch->steps[0].missing, round == 1);
        files_batch_destroy(batch);
        assert_int_equal(stat(dir, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0750);
        assert_int_equal(stat(unit_path(dir, "launch"), &st), 0);
        assert_int_equal(st.st_size, 3);
        assert_int_equal(access(unit_path(dir, "launch.new"), F_OK), -1);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, place_setup, place_teardown)
    const struct CMUnitTest tests[] = {
        TEST(each_is_given_once_and_made_again),
        TEST(what_an_earlier_agent_left_goes),
        TEST(a_start_takes_it_or_makes_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
