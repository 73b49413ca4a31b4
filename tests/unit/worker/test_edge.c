/* test_edge.c - memory that runs out inside librondo comes back as a result. */
#include "base/mem.h"
#include "tests/unit/unit.h"
#include "worker/edge.h"
#include "worker/member.h"

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED true
#else
#define SANITIZED unit_has_thread_sanitizer() /* clang has no such macro */
#endif

static int ask_for_too_much(void *arg)
{
    int *entered = arg;

    ++*entered;
    mem_free(mem_array(SIZE_MAX / 16, 32)); /* overflows */
    ++*entered;
    return 0;
}

static int ask_for_more_than_there_is(void *arg)
{
    (void)arg;
    mem_free(mem_alloc(SIZE_MAX / 2));
    return 0;
}

static struct arena *kept; /* what a call had built when memory ran out is nobody's */

static int fill_an_arena(void *arg)
{
    (void)arg;
    kept = arena_create(64);
    (void)arena_alloc(kept, 100);
    return 0;
}

static int answer(void *arg)
{
    return *(int *)arg;
}

static void out_of_memory_is_a_result(void **state)
{
    int entered = 0;

    (void)state;
    assert_int_equal(edge_run(ask_for_too_much, &entered), -RONDO_EXHAUSTED);
    assert_int_equal(entered, 1);
    assert_string_equal(member_error(), "out of memory");
    if (!SANITIZED) /* its allocator ends the program itself */
        assert_int_equal(edge_run(ask_for_more_than_there_is, NULL), -RONDO_EXHAUSTED);
    assert_int_equal(edge_run(fill_an_arena, NULL), -RONDO_EXHAUSTED);
    arena_destroy(kept);
}

static void results_pass_through(void **state)
{
    int given[] = {0, 2, -RONDO_INVALID};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(given); i++)
        assert_int_equal(edge_run(answer, &given[i]), given[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_of_memory_is_a_result),
        cmocka_unit_test(results_pass_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
