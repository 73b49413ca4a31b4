/* test_mailbox.c - mail from other threads: nothing lost, order kept, delivered at destroy. */
#include "base/mailbox.h"
#include "tests/unit/unit.h"
#include <uv.h>

#define POSTERS 4
#define LETTERS 2000

struct letter {
    struct mail mail;
    int poster, number;
};

struct poster {
    uv_thread_t thread;
    struct mailbox *box;
    int id;
};

static struct {
    struct loop *loop;
    int next[POSTERS]; /* the number expected from each */
    int delivered, wrong;
} seen;

static void delivered(struct mail *mail)
{
    struct letter *letter = CONTAINER_OF(mail, struct letter, mail);
    seen.wrong += letter->number != seen.next[letter->poster]++;
    if (++seen.delivered == POSTERS * LETTERS)
        loop_uv_stop(seen.loop);
    mem_free(letter);
}

static void post_one(struct mailbox *box, int poster, int number)
{
    struct letter *letter = NEW(struct letter);
    letter->mail.deliver = delivered;
    letter->poster = poster;
    letter->number = number;
    mailbox_post(box, &letter->mail);
}

static void post_all(void *arg)
{
    struct poster *poster = arg;
    for (int i = 0; i < LETTERS; i++)
        post_one(poster->box, poster->id, i);
}

static int setup(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    seen.loop = loop_uv_create();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    loop_uv_destroy(seen.loop);
    return 0;
}

static void nothing_is_lost_and_order_is_kept(void **state)
{
    struct mailbox *box = mailbox_create(seen.loop);
    struct poster posters[POSTERS];
    (void)state;
    for (int i = 0; i < POSTERS; i++) {
        posters[i].box = box;
        posters[i].id = i;
        assert_int_equal(uv_thread_create(&posters[i].thread, post_all, &posters[i]), 0);
    }
    loop_uv_run(seen.loop);
    for (int i = 0; i < POSTERS; i++)
        uv_thread_join(&posters[i].thread);
    mailbox_destroy(box);
    assert_int_equal(seen.delivered, POSTERS * LETTERS);
    assert_int_equal(seen.wrong, 0);
}

static void destroy_delivers_what_waits(void **state)
{
    struct mailbox *box = mailbox_create(seen.loop);
    (void)state;
    post_one(box, 0, 0);
    post_one(box, 0, 1);
    assert_int_equal(seen.delivered, 0);
    mailbox_destroy(box);
    assert_int_equal(seen.delivered, 2);
    mailbox_destroy(NULL);
}

struct last {
    struct mail mail;
    struct mailbox *box;
};

static void destroy_box(struct mail *mail)
{
    struct last *last = CONTAINER_OF(mail, struct last, mail);
    mailbox_destroy(last->box);
    mem_free(last);
}

static void a_delivery_may_destroy_the_box(void **state)
{
    struct mailbox *box = mailbox_create(seen.loop);
    struct last *last = NEW(struct last);
    (void)state;
    last->mail.deliver = destroy_box;
    last->box = box;
    mailbox_post(box, &last->mail);
    post_one(box, 0, 0);
    mailbox_drain(box);
    loop_uv_run(seen.loop);
    assert_int_equal(seen.delivered, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_lost_and_order_is_kept),
        TEST(destroy_delivers_what_waits),
        TEST(a_delivery_may_destroy_the_box),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
