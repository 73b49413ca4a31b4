/* test_slots.c - slots are mapped once, and what is no slot is refused without a signal. */
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/unit.h"
#include "worker/slots.h"

#define BYTES ((uint64_t)1 << 20)

static const char *make(void **state, const char *name, uint64_t bytes)
{
    const char *path = unit_path(*state, name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    (void)close(fd);
    return path;
}

static bool is_mapped(const char *path)
{
    SCOPED_TEXT char *maps = NULL;
    SCOPED_TEXT char *line = mem_printf("%s\n", path);
    size_t len;

    assert_int_equal(file_read("/proc/self/maps", (size_t)16 << 20, &maps, &len, NULL), STATUS_OK);
    return strstr(maps, line) != NULL;
}

static void the_same_file_is_the_same_mapping(void **state)
{
    const char *one = make(state, "slot-0", BYTES), *two = make(state, "slot-1", BYTES);
    struct slot_head *first, *second, *again;

    assert_int_equal(slots_map(one, BYTES, &first, NULL), STATUS_OK);
    assert_int_equal(slots_map(two, BYTES, &second, NULL), STATUS_OK);
    first->magic = 5;
    assert_int_equal(slots_map(one, BYTES, &again, NULL), STATUS_OK);
    assert_ptr_equal(again, first);
    assert_int_equal(again->magic, 5);
    assert_ptr_not_equal(first, second);
}

static void another_file_of_that_name_is_mapped_anew(void **state)
{
    const char *path = make(state, "slot-0", BYTES);
    struct slot_head *head;

    assert_int_equal(slots_map(path, BYTES, &head, NULL), STATUS_OK);
    head->magic = 5;
    assert_int_equal(unlink(path), 0);
    path = make(state, "slot-0", BYTES);
    assert_int_equal(slots_map(path, BYTES, &head, NULL), STATUS_OK);
    assert_int_equal(head->magic, 0);
}

/* The one in its place goes, whichever was mapped first; the other one's pages stay. */
static void another_size_takes_the_mapping_of_its_place(void **state)
{
    const char *one = make(state, "slot-0", BYTES), *two = make(state, "slot-1", BYTES);
    const char *larger = make(state, "slot-1.1", 2 * BYTES);
    struct slot_head *first, *second, *grown, *again;

    assert_int_equal(slots_map(one, BYTES, &first, NULL), STATUS_OK);
    assert_int_equal(slots_map(two, BYTES, &second, NULL), STATUS_OK);
    assert_int_equal(slots_map(larger, 2 * BYTES, &grown, NULL), STATUS_OK);
    assert_int_equal(slots_map(one, BYTES, &again, NULL), STATUS_OK);
    assert_ptr_equal(again, first);
    assert_int_equal(slots_map(larger, 2 * BYTES, &again, NULL), STATUS_OK);
    assert_ptr_equal(again, grown);
    assert_true(is_mapped(one));
    assert_true(is_mapped(larger));
    assert_false(is_mapped(two));
}

static void what_is_no_slot_is_refused(void **state)
{
    const char *path = make(state, "slot-0", BYTES - 4096);
    const char *link = unit_path(*state, "link");
    struct slot_head *head = NULL;

    assert_int_equal(slots_map(path, BYTES, &head, NULL), STATUS_PRECONDITION);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(slots_map(link, BYTES - 4096, &head, NULL), STATUS_UNAVAILABLE);
    assert_int_equal(slots_map(unit_path(*state, "none"), BYTES, &head, NULL), STATUS_UNAVAILABLE);
    assert_int_equal(slots_map(*state, 4096, &head, NULL), STATUS_UNAVAILABLE);
    assert_null(head);
}

/* More than any tmpfs has: the blocks are asked for before the memory is touched. */
static void no_room_is_an_error_and_no_signal(void **state)
{
    char place[] = "/dev/shm/test-slots-XXXXXX";
    const uint64_t bytes = (uint64_t)1 << 44;
    struct slot_head *head = NULL;
    char *made = mkdtemp(place);

    (void)state;
    if (!made)
        skip();
    const char *path = make((void **)&made, "slot-0", bytes);
    enum status st = slots_map(path, bytes, &head, NULL);
    (void)unlink(path);
    (void)rmdir(place);
    assert_int_equal(st, STATUS_EXHAUSTED);
    assert_null(head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_same_file_is_the_same_mapping, unit_dir_setup,
                                        unit_dir_teardown),
        cmocka_unit_test_setup_teardown(another_file_of_that_name_is_mapped_anew, unit_dir_setup,
                                        unit_dir_teardown),
        cmocka_unit_test_setup_teardown(another_size_takes_the_mapping_of_its_place, unit_dir_setup,
                                        unit_dir_teardown),
        cmocka_unit_test_setup_teardown(what_is_no_slot_is_refused, unit_dir_setup,
                                        unit_dir_teardown),
        cmocka_unit_test_setup_teardown(no_room_is_an_error_and_no_signal, unit_dir_setup,
                                        unit_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
