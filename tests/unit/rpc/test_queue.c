/* test_queue.c - mail from other threads: all of it, in order, also when a delivery pumps or
 * destroys. */
#include "rpc/queue.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <uv.h>

#define MAILS 2000

struct fixture {
    struct loop *loop;
    struct rpc_queue *queue;
    unsigned delivered, nested;
    bool ordered;
};
struct numbered {
    struct mail mail;
    struct fixture *fixture;
    unsigned number;
};

static int setup(void **state)
{
    struct fixture *fixture = NEW(struct fixture);

    grpc_init();
    fixture->loop = loop_uv_create();
    fixture->queue = rpc_queue_create(fixture->loop);
    fixture->ordered = true;
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    rpc_queue_destroy(fixture->queue);
    loop_uv_destroy(fixture->loop);
    grpc_shutdown_blocking();
    mem_free(fixture);
    return 0;
}

static void count(struct mail *mail)
{
    struct numbered *item = CONTAINER_OF(mail, struct numbered, mail);

    item->fixture->ordered &= item->number == item->fixture->delivered;
    item->fixture->delivered++;
}

static struct numbered *numbered_create(struct fixture *fixture, void (*deliver)(struct mail *mail))
{
    struct numbered *items = mem_array(MAILS, sizeof *items);

    for (unsigned i = 0; i < MAILS; i++) {
        items[i].mail.deliver = deliver;
        items[i].fixture = fixture;
        items[i].number = i;
    }
    return items;
}

static void *post_all(void *arg)
{
    struct numbered *items = arg;

    for (unsigned i = 0; i < MAILS; i++)
        rpc_queue_post(items->fixture->queue, &items[i].mail);
    return NULL;
}

static void mail_of_another_thread_comes_in_order(void **state)
{
    struct fixture *fixture = *state;
    struct numbered *items = numbered_create(fixture, count);
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, post_all, items), 0);
    while (fixture->delivered < MAILS)
        uv_run(loop_uv_handle(fixture->loop), UV_RUN_ONCE);
    pthread_join(thread, NULL);
    assert_true(fixture->ordered);
    mem_free(items);
}

static void pump_waits_without_the_loop(void **state)
{
    struct fixture *fixture = *state;
    struct numbered *items = numbered_create(fixture, count);
    pthread_t thread;

    rpc_queue_pump(fixture->queue, 1); /* nothing there: comes back */
    assert_int_equal(pthread_create(&thread, NULL, post_all, items), 0);
    while (fixture->delivered < MAILS)
        rpc_queue_pump(fixture->queue, 1000);
    pthread_join(thread, NULL);
    assert_true(fixture->ordered);
    mem_free(items);
}

static void count_and_pump(struct mail *mail)
{
    struct fixture *fixture = CONTAINER_OF(mail, struct numbered, mail)->fixture;

    count(mail);
    if (fixture->delivered == MAILS / 2) {
        while (fixture->delivered < MAILS)
            rpc_queue_pump(fixture->queue, 10);
        fixture->nested++;
    }
}

/* What destroy does inside a callback: it must see what the interrupted delivery has not reached.
 */
static void pump_inside_a_delivery_takes_the_rest(void **state)
{
    struct fixture *fixture = *state;
    struct numbered *items = numbered_create(fixture, count_and_pump);

    post_all(items);
    while (fixture->nested == 0)
        uv_run(loop_uv_handle(fixture->loop), UV_RUN_ONCE);
    assert_int_equal(fixture->delivered, MAILS);
    assert_true(fixture->ordered);
    mem_free(items);
}

static void count_and_destroy(struct mail *mail)
{
    struct fixture *fixture = CONTAINER_OF(mail, struct numbered, mail)->fixture;

    count(mail);
    if (fixture->delivered == MAILS / 2)
        rpc_queue_destroy(TAKE(fixture->queue));
}

static void destroy_inside_a_delivery_delivers_the_rest(void **state)
{
    struct fixture *fixture = *state;
    struct numbered *items = numbered_create(fixture, count_and_destroy);

    post_all(items);
    while (fixture->queue)
        uv_run(loop_uv_handle(fixture->loop), UV_RUN_ONCE);
    assert_int_equal(fixture->delivered, MAILS);
    mem_free(items);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(mail_of_another_thread_comes_in_order),
        CASE(pump_waits_without_the_loop),
        CASE(pump_inside_a_delivery_takes_the_rest),
        CASE(destroy_inside_a_delivery_delivers_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
