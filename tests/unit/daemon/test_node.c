/* test_node.c - what may be asked of a node. */
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

static enum status set_admin(struct rig *rig, Pb__Node__Admin admin, struct error *err)
{
    Pb__SetNodeRequest request = PB__SET_NODE_REQUEST__INIT;
    struct rig_answer answer = {0};
    char id[32];

    snprintf(id, sizeof(id), "set-node-%llu", (unsigned long long)++rig->calls);
    request.request_id = id;
    request.node = (char *)"n1";
    request.has_admin = true;
    request.admin = admin;
    rig_call(rig, &request.base, &answer);
    *err = answer.err;
    if (answer.reply)
        protobuf_c_message_free_unpacked(answer.reply, NULL);
    return answer.st;
}

static void a_cordoned_node_starts_nothing_and_a_drain_is_told_what_to_do(void **state)
{
    struct rig *rig = *state;
    struct error err = {0};

    rig_node_join(rig, "n1", 2);
    int64_t first = rig_submit(rig, 1, NULL);
    assert_int_equal(set_admin(rig, PB__NODE__ADMIN__DRAINING, &err), STATUS_UNIMPLEMENTED);
    assert_non_null(strstr(err.text, "set CORDONED"));
    assert_non_null(strstr(err.text, "hold or cancel the jobs that run there"));
    assert_int_equal(set_admin(rig, PB__NODE__ADMIN__ADMIN_UNSPECIFIED, &err), STATUS_INVALID);
    assert_int_equal(set_admin(rig, PB__NODE__ADMIN__CORDONED, &err), STATUS_OK);
    int64_t second = rig_submit(rig, 1, NULL);
    assert_int_equal(rig_state(rig, first), PB__JOB__STATE__STARTING);
    assert_int_equal(rig_state(rig, second), PB__JOB__STATE__QUEUED);
    assert_int_equal(set_admin(rig, PB__NODE__ADMIN__IN_SERVICE, &err), STATUS_OK);
    assert_int_equal(rig_state(rig, second), PB__JOB__STATE__STARTING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_cordoned_node_starts_nothing_and_a_drain_is_told_what_to_do, rig_setup, rig_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
