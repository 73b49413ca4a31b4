/* test_runtime.c - gRPC's log lines become ours, a flood of them is thinned, arguments are kept. */
#include "base/log.h"
#include "rpc/runtime.h"
#include "tests/unit/unit.h"
#include <grpc/support/log.h>

static unsigned lines, handshakes;

static void sink(void *arg, const char *line)
{
    (void)arg;
    lines++;
    if (strstr(line, "rpc.handshake"))
        handshakes++;
}

static int setup(void **state)
{
    (void)state;
    lines = handshakes = 0;
    rpc_runtime_acquire();
    log_setup("test", LOG_WARN, 2);
    log_set_sink(sink, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    log_set_sink(NULL, NULL);
    rpc_runtime_release();
    return 0;
}

static void flood_of_failed_handshakes_is_thinned(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        gpr_log(GPR_ERROR, "Handshake failed with fatal error");
    assert_in_range(lines, 1, 100); /* one a second, however slow this machine is */
    assert_int_equal(handshakes, lines);
}

static void small_talk_is_not_shown(void **state)
{
    (void)state;
    gpr_log(GPR_INFO, "something happened");
    gpr_log(GPR_DEBUG, "something else happened");
    assert_int_equal(lines, 0);
}

static void arguments_are_kept_in_order(void **state)
{
    struct rpc_args args = {.count = 0};

    (void)state;
    rpc_args_common(&args, 0);
    assert_int_equal(args.items[0].value.integer, RPC_MESSAGE_BYTES_DEFAULT);
    size_t common = args.count;
    rpc_args_text(&args, "a", "b");
    grpc_channel_args list = rpc_args_get(&args);
    assert_int_equal(list.num_args, common + 1);
    assert_string_equal(list.args[common].key, "a");
    assert_string_equal(list.args[common].value.string, "b");
    args.count = 0;
    rpc_args_common(&args, UINT32_MAX);
    assert_int_equal(args.items[0].value.integer, INT32_MAX);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(flood_of_failed_handshakes_is_thinned),
        CASE(small_talk_is_not_shown),
        CASE(arguments_are_kept_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
