/* Server and client over mTLS: who gets in, who is refused, rotation and revocation. */
#include "rig.h"

static int setup(void **state)
{
    struct rig *rig = rig_create();

    rig_make_ca(rig);
    rig_serve(rig, "127.0.0.1:0");
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

static void caller_is_known_by_its_certificate(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answer = {0};

    rig->client = rig_client(rig, "ada");
    rig_submit_id(rig, rig->client, "tls", &answer);
    RIG_UNTIL(rig, answer.times);
    assert_string_equal(answer.text, "");
    assert_int_equal(answer.st, STATUS_OK);
    assert_string_equal(rig->identity, "user/ada");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(caller_is_known_by_its_certificate, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
