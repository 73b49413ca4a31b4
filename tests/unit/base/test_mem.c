/* test_mem.c - allocation, scoped cleanup, arenas. */
#include "tests/unit/unit.h"
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whether fn ends the process by abort. */
static bool aborts(void (*fn)(void))
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        fn();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void allocations_are_zeroed(void **state)
{
    (void)state;
    unsigned char *bytes = mem_array(100, 3);
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(bytes[i], 0);
    mem_free(bytes);
    mem_free(mem_alloc(0));
}

static void overflow_array(void)
{
    mem_free(mem_array(SIZE_MAX / 2, 3));
}

static void overflow_resize(void)
{
    mem_free(mem_resize(NULL, SIZE_MAX, 2));
}

static void overflow_arena(void)
{
    struct arena *arena = arena_create(100);
    arena_alloc(arena, 60);
    arena_alloc(arena, 60);
    arena_destroy(arena);
}

static void overflow_arena_at_once(void)
{
    struct arena *arena = arena_create(SIZE_MAX);
    arena_alloc(arena, SIZE_MAX - 3);
    arena_destroy(arena);
}

static void sizes_that_overflow_abort(void **state)
{
    (void)state;
    assert_true(aborts(overflow_array));
    assert_true(aborts(overflow_resize));
    assert_true(aborts(overflow_arena));
    assert_true(aborts(overflow_arena_at_once));
}

static void copies_are_copies(void **state)
{
    (void)state;
    char *text = mem_strdup("abc"), *printed = mem_printf("%d-%s", 7, "x");
    char *dup = mem_dup("xyz", 4);
    assert_string_equal(text, "abc");
    assert_string_equal(printed, "7-x");
    assert_string_equal(dup, "xyz");
    assert_null(mem_strdup(NULL));
    mem_free(text);
    mem_free(printed);
    mem_free(dup);
}

static char *take_from_scope(void)
{
    SCOPED_TEXT char *text = mem_strdup("kept");
    return TAKE(text);
}

static void take_moves_out_of_scope(void **state)
{
    (void)state;
    char *text = take_from_scope();
    assert_string_equal(text, "kept");
    mem_free(text);
}

static void arena_gives_aligned_zeroed_memory(void **state)
{
    struct arena *arena = arena_create((size_t)64 << 20);
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (size_t size = 1; size < 3000; size += 7) {
            unsigned char *bytes = arena_alloc(arena, size);
            assert_int_equal((uintptr_t)bytes % 16, 0);
            for (size_t i = 0; i < size; i++)
                assert_int_equal(bytes[i], 0);
            memset(bytes, 0xff, size);
        }
        assert_string_equal(arena_strdup(arena, "name"), "name");
        arena_reset(arena);
    }
    memset(arena_alloc(arena, (size_t)5 << 20), 1, (size_t)5 << 20); /* more than a block */
    arena_destroy(arena);
    arena_destroy(NULL);
}

static void arena_reset_gives_the_room_back(void **state)
{
    struct arena *arena = arena_create(100);
    (void)state;
    for (int i = 0; i < 10; i++) {
        arena_alloc(arena, 100);
        arena_reset(arena);
    }
    arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_zeroed),
        cmocka_unit_test(sizes_that_overflow_abort),
        cmocka_unit_test(copies_are_copies),
        cmocka_unit_test(take_moves_out_of_scope),
        cmocka_unit_test(arena_gives_aligned_zeroed_memory),
        cmocka_unit_test(arena_reset_gives_the_room_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
