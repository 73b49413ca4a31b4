/* test_io_pool.c - items begin in order, take turns, and end at the first failure. */
#include "checkpoint/io_pool.h"
#include "tests/unit/unit.h"
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#define BUFFER ((size_t)64 << 10)

static int pool_setup(void **state)
{
    const struct io_pool_options options = {.threads = 4, .buffer_bytes = BUFFER};
    struct io_pool *pool = NULL;

    assert_int_equal(io_pool_create(&options, &pool, NULL), STATUS_OK);
    *state = pool;
    return 0;
}

static int pool_teardown(void **state)
{
    io_pool_destroy(*state);
    return 0;
}

struct order {
    struct io_pool *pool;
    size_t seen[100], count, fails;
};

static enum status take_turn(void *arg, size_t item, void *buffer, struct error *err)
{
    struct order *order = arg;

    memset(buffer, (int)item, BUFFER);
    if (item == order->fails)
        return error_set(err, STATUS_DENIED, "item %zu", item);
    if (!io_pool_turn(order->pool, item))
        return STATUS_CANCELLED;
    order->seen[order->count++] = item;
    io_pool_turn_over(order->pool);
    return STATUS_OK;
}

static void turns_are_in_order_and_the_first_failure_is_told(void **state)
{
    struct io_pool *pool = *state;
    struct order order = {.pool = pool, .fails = SIZE_MAX};
    struct error err;

    assert_int_equal(io_pool_run(pool, 100, take_turn, &order, NULL), STATUS_OK);
    assert_int_equal(order.count, 100);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(order.seen[i], i);
    for (size_t fails = 0; fails < 100; fails += 9) {
        order = (struct order){.pool = pool, .fails = fails};
        assert_int_equal(io_pool_run(pool, 100, take_turn, &order, &err), STATUS_DENIED);
        SCOPED_TEXT char *text = mem_printf("item %zu", fails);
        assert_string_equal(err.text, text);
        assert_true(order.count <= fails);
    }
    assert_int_equal(io_pool_run(pool, 0, take_turn, &order, NULL), STATUS_OK);
}

/* --- buffers */

struct buffers {
    struct io_pool *pool;
    atomic_size_t busy, most;
};

static enum status use_buffer(void *arg, size_t item, void *buffer, struct error *err)
{
    struct buffers *buffers = arg;
    unsigned char *bytes = buffer;
    size_t busy = atomic_fetch_add(&buffers->busy, 1) + 1, most = atomic_load(&buffers->most);

    while (busy > most && !atomic_compare_exchange_weak(&buffers->most, &most, busy))
        continue;
    assert_int_equal((uintptr_t)buffer % IO_POOL_ALIGN, 0);
    memset(bytes, (int)item, BUFFER);
    for (size_t i = 0; i < BUFFER; i++) /* nobody else has it now */
        if (bytes[i] != (unsigned char)item)
            return error_set(err, STATUS_INTERNAL, "a buffer is shared");
    atomic_fetch_sub(&buffers->busy, 1);
    return STATUS_OK;
}

static void each_thread_has_a_buffer_and_their_number_is_bounded(void **state)
{
    struct buffers buffers = {.pool = *state};

    assert_int_equal(io_pool_buffer_bytes(*state), BUFFER);
    assert_int_equal(io_pool_run(*state, 500, use_buffer, &buffers, NULL), STATUS_OK);
    assert_in_range(atomic_load(&buffers.most), 1, 4);
}

static enum status fail_all(void *arg, size_t item, void *buffer, struct error *err)
{
    (void)arg, (void)item, (void)buffer, (void)err;
    return STATUS_UNAVAILABLE;
}

static void a_failure_without_a_text_has_its_name(void **state)
{
    struct error err;

    assert_int_equal(io_pool_run(*state, 3, fail_all, NULL, &err), STATUS_UNAVAILABLE);
    assert_string_equal(err.text, "unavailable");
    assert_int_equal(io_pool_run(*state, 3, fail_all, NULL, NULL), STATUS_UNAVAILABLE);
}

static enum status look_at_nice(void *arg, size_t item, void *buffer, struct error *err)
{
    (void)buffer;
    (void)err;
    ((int *)arg)[item] = getpriority(PRIO_PROCESS, (id_t)gettid());
    return STATUS_OK;
}

static void background_threads_give_way_and_the_caller_does_not(void **state)
{
    const struct io_pool_options options = {
        .threads = 2, .buffer_bytes = BUFFER, .background = true};
    SCOPED(io_pool_destroy) struct io_pool *pool = NULL;
    int before = getpriority(PRIO_PROCESS, 0), seen[8] = {0};

    (void)state;
    assert_int_equal(io_pool_create(&options, &pool, NULL), STATUS_OK);
    assert_int_equal(io_pool_run(pool, COUNT_OF(seen), look_at_nice, seen, NULL), STATUS_OK);
    for (size_t i = 0; i < COUNT_OF(seen); i++)
        assert_int_equal(seen[i], before > 10 ? before : 10);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, pool_setup, pool_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(background_threads_give_way_and_the_caller_does_not),
        T(turns_are_in_order_and_the_first_failure_is_told),
        T(each_thread_has_a_buffer_and_their_number_is_bounded),
        T(a_failure_without_a_text_has_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
