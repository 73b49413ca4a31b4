/* test_code_upload.c - an upload that is refused for the moment is sent again, whole. */
#include "ctl/code_upload.h"
#include "ctl/connect.h"
#include "tests/unit/ctl/fake.h"

static void an_upload_is_sent_again_from_the_start(void **state)
{
    struct fake *fake = *state;
    struct connect_flags flags = {.server = fake->target};
    struct pack pack = {.digest = "00"};
    struct error err;
    int code = 0;
    char *bytes = mem_alloc(6 << 20);
    struct connect *connect = connect_open(&flags, &code);
    assert_non_null(connect);
    text_init(&pack.tar, 0);
    text_add_bytes(&pack.tar, bytes, 6 << 20);
    assert_int_equal(code_upload(connect, &pack, &err), STATUS_OK);
    assert_int_equal(fake->code_bytes, 6 << 20);
    fake->code_bytes = 0;
    fake->away = 1; /* the question */
    fake->puts_away = 1;
    assert_int_equal(code_upload(connect, &pack, &err), STATUS_OK);
    assert_int_equal(fake->code_bytes, 6 << 20);
    assert_int_equal(fake->code_puts, 3);
    fake->have_code = true;
    assert_int_equal(code_upload(connect, &pack, &err), STATUS_OK);
    assert_int_equal(fake->code_puts, 3);
    pack_fini(&pack);
    mem_free(bytes);
    connect_close(connect);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        an_upload_is_sent_again_from_the_start, fake_setup, fake_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
