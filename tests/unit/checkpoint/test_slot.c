/* test_slot.c - what a worker hands over in a slot, and what an agent does not believe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/slot.h"

#define DIGEST "0123456789abcdef0123456789abcdef"
#define BYTES  65536

struct fixture {
    int fd;
    struct slot_head *map;
};

static int slot_setup(void **state)
{
    static struct fixture f;
    char path[] = "/tmp/rondo-slot-XXXXXX";
    f.fd = mkstemp(path);
    if (f.fd < 0 || unlink(path) != 0 || ftruncate(f.fd, BYTES) != 0)
        return -1;
    f.map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
    *state = &f;
    return f.map == MAP_FAILED ? -1 : 0;
}

static int slot_teardown(void **state)
{
    struct fixture *f = *state;
    return munmap(f->map, BYTES) == 0 && close(f->fd) == 0 ? 0 : -1;
}

static void hand_over(struct fixture *f)
{
    uint64_t at = 0;
    slot_begin(f->map, BYTES, 120);
    assert_int_equal(
        slot_add(f->map, "shard-00001-model-00001-of-00001.safetensors", 5000, &at, NULL),
        STATUS_OK);
    assert_int_equal(at, SLOT_HEAD_BYTES);
    assert_int_equal(slot_add(f->map, SLOT_STATE_NAME, 2, &at, NULL), STATUS_OK);
    assert_int_equal(at, SLOT_HEAD_BYTES + 8192);
    memcpy((char *)f->map + at, "{}", 2);
    slot_fill(f->map, INT64_C(1) << 53, DIGEST);
}

static void what_was_handed_over_is_read_back(void **state)
{
    struct fixture *f = *state;
    struct slot_head head;
    hand_over(f);
    assert_int_equal(slot_read(f->fd, &head, NULL), STATUS_OK);
    assert_int_equal(head.step, 120);
    assert_int_equal(head.samples, INT64_C(1) << 53);
    assert_string_equal(head.layout_digest, DIGEST);
    assert_int_equal(head.files_count, 2);
    assert_int_equal(slot_find(&head, SLOT_STATE_NAME)->bytes, 2);
    assert_null(slot_find(&head, "other"));
    assert_int_equal(slot_set_state(f->fd, SLOT_PERSISTED, NULL), STATUS_OK);
    assert_int_equal(atomic_load(&f->map->state), SLOT_PERSISTED);
    assert_int_equal(slot_read(f->fd, &head, NULL), STATUS_OK);
}

static void a_slot_counts_from_filled_on(void **state) /* K7 */
{
    struct fixture *f = *state;
    struct slot_head head;
    uint64_t at;
    assert_int_equal(slot_read(f->fd, &head, NULL), STATUS_PRECONDITION);
    slot_begin(f->map, BYTES, 120);
    assert_int_equal(slot_add(f->map, "a", 1, &at, NULL), STATUS_OK);
    assert_int_equal(slot_read(f->fd, &head, NULL), STATUS_PRECONDITION);
    slot_fill(f->map, -1, DIGEST);
    assert_int_equal(slot_read(f->fd, &head, NULL), STATUS_OK);
    slot_begin(f->map, BYTES, 130); /* the next one is being written over it */
    assert_int_equal(slot_read(f->fd, &head, NULL), STATUS_PRECONDITION);
}

static void every_flipped_bit_of_the_head_is_found(void **state)
{
    struct fixture *f = *state;
    struct slot_head head;
    unsigned char *bytes = (unsigned char *)f->map;
    hand_over(f);
    for (size_t bit = 0; bit < sizeof(struct slot_head) * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        enum status status = slot_read(f->fd, &head, NULL);
        if (bit / 8 < offsetof(struct slot_head, state) ||
            bit / 8 >= offsetof(struct slot_head, state) + 4)
            assert_int_not_equal(status, STATUS_OK);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_int_equal(slot_read(f->fd, &head, NULL), STATUS_OK);
}

static enum status read_again(struct fixture *f)
{
    struct slot_head head;
    slot_fill(f->map, 1, DIGEST); /* the sum fits: a hostile worker */
    return slot_read(f->fd, &head, NULL);
}

static void hostile_heads_are_refused(void **state) /* K19 */
{
    struct fixture *f = *state;
    hand_over(f);
    const struct slot_head good = *f->map;
    static const char *const names[] = {"../x", "a/b", "", ".hidden", "a b", "\xff"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        memset(f->map->files[0].name, 0, SLOT_NAME_MAX);
        memcpy(f->map->files[0].name, names[i], strlen(names[i]));
        assert_int_equal(read_again(f), STATUS_DATA_LOSS);
        memcpy(f->map, &good, sizeof good);
    }
    memset(f->map->files[0].name, 'a', SLOT_NAME_MAX); /* no end */
    assert_int_equal(read_again(f), STATUS_DATA_LOSS);
    memcpy(f->map, &good, sizeof good);
    f->map->files[1] = f->map->files[0]; /* twice, and one over the other */
    assert_int_equal(read_again(f), STATUS_DATA_LOSS);
    memcpy(f->map, &good, sizeof good);
    static const uint64_t places[][2] = {{0, 1},
                                         {SLOT_HEAD_BYTES + 1, 1},
                                         {SLOT_HEAD_BYTES, BYTES},
                                         {UINT64_MAX - 4095, 8192},
                                         {SLOT_HEAD_BYTES, UINT64_MAX},
                                         {BYTES, 1}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        f->map->files[0].offset = places[i][0];
        f->map->files[0].bytes = places[i][1];
        assert_int_equal(read_again(f), STATUS_DATA_LOSS);
        memcpy(f->map, &good, sizeof good);
    }
    f->map->files_count = SLOT_FILES_MAX + 1;
    assert_int_equal(read_again(f), STATUS_DATA_LOSS);
    memcpy(f->map, &good, sizeof good);
    f->map->bytes = BYTES + 1;
    assert_int_equal(read_again(f), STATUS_DATA_LOSS);
    memcpy(f->map, &good, sizeof good);
    f->map->step = -1;
    assert_int_equal(read_again(f), STATUS_DATA_LOSS);
    memcpy(f->map, &good, sizeof good);
    assert_int_equal(ftruncate(f->fd, 4096), 0); /* cut behind our back: no SIGBUS */
    struct slot_head head;
    assert_int_equal(slot_read(f->fd, &head, NULL), STATUS_DATA_LOSS);
    assert_int_equal(ftruncate(f->fd, BYTES), 0);
}

static void adding_is_bounded(void **state)
{
    struct fixture *f = *state;
    uint64_t at = 7;
    char name[16];
    slot_begin(f->map, BYTES, 1);
    assert_int_equal(slot_add(f->map, "large", BYTES, &at, NULL), STATUS_EXHAUSTED);
    assert_int_equal(at, 7);
    assert_int_equal(slot_add(f->map, "a/b", 1, &at, NULL), STATUS_INVALID);
    assert_int_equal(slot_add(f->map, "a", 0, &at, NULL), STATUS_OK);
    assert_int_equal(slot_add(f->map, "a", 0, &at, NULL), STATUS_INVALID);
    for (int i = 1; i < SLOT_FILES_MAX; i++) {
        snprintf(name, sizeof name, "f%d", i);
        assert_int_equal(slot_add(f->map, name, 0, &at, NULL), STATUS_OK);
    }
    assert_int_equal(slot_add(f->map, "one-more", 0, &at, NULL), STATUS_EXHAUSTED);
}

static void size_holds_what_is_added(void **state)
{
    const uint64_t files[] = {5000, 2, 0, 4096};
    (void)state;
    assert_int_equal(slot_bytes(files, 4), SLOT_HEAD_BYTES + 8192 + 4096 + 4096);
    assert_int_equal(slot_bytes(files, SLOT_FILES_MAX + 1), 0);
    const uint64_t large[] = {UINT64_MAX, UINT64_MAX};
    assert_int_equal(slot_bytes(large, 2), 0);
}

static void places_are_read_off_names(void **state)
{
    static const char *const bad[] = {"",        "slot",     "slot-",   "slot-2",    "slot-10",
                                      "slot-0.", "slot-1.x", "slot-0x", "slot-0.1x", "slot-0.-1",
                                      "xslot-0", "Slot-0",   "slot-0 ", "slot-0.1.2"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (slot_place(bad[i]) >= 0)
            fail_msg("%s is the name of a slot", bad[i]);
    assert_int_equal(slot_place("slot-0"), 0);
    assert_int_equal(slot_place("slot-1"), 1);
    assert_int_equal(slot_place("slot-0.7"), 0);
    assert_int_equal(slot_place("slot-1.12345"), 1);
}

#define T(test) cmocka_unit_test_setup_teardown(test, slot_setup, slot_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_was_handed_over_is_read_back),
        T(a_slot_counts_from_filled_on),
        T(every_flipped_bit_of_the_head_is_found),
        T(hostile_heads_are_refused),
        T(adding_is_bounded),
        T(size_holds_what_is_added),
        cmocka_unit_test(places_are_read_off_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
