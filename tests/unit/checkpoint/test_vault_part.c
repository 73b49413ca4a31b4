/* test_vault_part.c - a part made beside its name: there at once and whole, or not at all. */
#include "checkpoint/vault.h"
#include "checkpoint/vault_part.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP "job-7/step-120.3"

static void put(const struct vault_part *part, const char *name, const char *text)
{
    int fd = openat(part->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

static bool is_there(const char *dir, const char *name)
{
    SCOPED_TEXT char *path = mem_printf("%s/" STEP "/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void it_is_there_once_it_is_published(void **state) /* M47 */
{
    const char *dir = *state;
    struct vault_part part;
    struct stat st;
    assert_int_equal(vault_part_begin(dir, STEP, "trainer", 0, &part, NULL), STATUS_OK);
    put(&part, "state.json", "{}");
    assert_false(is_there(dir, "trainer-0"));
    assert_int_equal(vault_part_publish(&part, -1, -1, NULL), STATUS_OK);
    vault_part_end(&part);
    assert_true(is_there(dir, "trainer-0/state.json"));
    assert_false(is_there(dir, ".trainer-0.new"));
    assert_int_equal(stat(unit_path(dir, STEP "/trainer-0"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0750);
}

static void one_that_is_given_up_leaves_nothing(void **state)
{
    const char *dir = *state;
    struct vault_part part;
    assert_int_equal(vault_part_begin(dir, STEP, "trainer", 0, &part, NULL), STATUS_OK);
    put(&part, "state.json", "{}");
    vault_part_end(&part);
    vault_part_end(&part);
    assert_false(is_there(dir, ".trainer-0.new"));
    assert_false(is_there(dir, "trainer-0"));
}

/* What an agent that died has left, under either name, does not mix with the new one. */
static void what_is_left_of_an_earlier_try_gives_way(void **state) /* K3, K13 */
{
    const char *dir = *state;
    struct vault_part part;
    char old[512];
    assert_int_equal(vault_part_create(dir, STEP, "trainer", 0, -1, -1, old, sizeof(old), NULL),
                     STATUS_OK);
    unit_write(unit_path(old, "stale"), "x");
    assert_int_equal(mkdir(unit_path(dir, STEP "/.trainer-0.new"), 0700), 0);
    unit_write(unit_path(dir, STEP "/.trainer-0.new/half"), "x");
    assert_int_equal(vault_part_begin(dir, STEP, "trainer", 0, &part, NULL), STATUS_OK);
    put(&part, "state.json", "{}");
    assert_int_equal(vault_part_publish(&part, -1, -1, NULL), STATUS_OK);
    vault_part_end(&part);
    assert_true(is_there(dir, "trainer-0/state.json"));
    assert_false(is_there(dir, "trainer-0/stale"));
    assert_false(is_there(dir, "trainer-0/half"));
}

static void a_sealed_checkpoint_is_not_written_into(void **state) /* K4 */
{
    const char *dir = *state;
    struct vault_part part;
    assert_int_equal(vault_part_begin(dir, STEP, "trainer", 0, &part, NULL), STATUS_OK);
    assert_int_equal(vault_seal(dir, STEP, "{}", 2, NULL), STATUS_OK);
    assert_int_equal(vault_part_publish(&part, -1, -1, NULL), STATUS_EXISTS);
    vault_part_end(&part);
    assert_int_equal(vault_part_begin(dir, STEP, "trainer", 0, &part, NULL), STATUS_EXISTS);
    assert_int_equal(vault_part_begin(dir, STEP, "../x", 0, &part, NULL), STATUS_INVALID);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(it_is_there_once_it_is_published),
        T(one_that_is_given_up_leaves_nothing),
        T(what_is_left_of_an_earlier_try_gives_way),
        T(a_sealed_checkpoint_is_not_written_into),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
