/* test_method.c - method tables: a server starts only with a row for every method, each right. */
#include "proto/pb.h"
#include "rpc/method.h"
#include "tests/unit/unit.h"

static void handle(void *arg, struct rpc_call *call, const ProtobufCMessage *request)
{
    (void)arg;
    (void)call;
    (void)request;
}

static enum status check(const struct rpc_method *rows, struct error *err)
{
    struct rpc_service service = {&pb__agents__descriptor, rows, NULL};

    return rpc_method_check(&service, err);
}

#define GOOD_ROWS                                                                                  \
    {"Control", RPC_BIDI, IDENTITY_AGENT, handle},                                                 \
    {                                                                                              \
        "Bulk", RPC_BIDI, IDENTITY_AGENT, handle                                                   \
    }
#define FETCH_ROW                                                                                  \
    {                                                                                              \
        "FetchCode", RPC_SERVER_STREAM, IDENTITY_AGENT, handle                                     \
    }

static void complete_table_is_accepted(void **state)
{
    const struct rpc_method rows[] = {GOOD_ROWS, FETCH_ROW, {NULL, RPC_UNARY, 0, NULL}};

    (void)state;
    assert_int_equal(check(rows, NULL), STATUS_OK);
}

static void every_gap_is_named(void **state)
{
    const struct rpc_method missing[] = {GOOD_ROWS, {NULL, RPC_UNARY, 0, NULL}};
    const struct rpc_method unknown[] = {
        GOOD_ROWS, FETCH_ROW, {"Nope", RPC_UNARY, 1, handle}, {NULL, RPC_UNARY, 0, NULL}};
    const struct rpc_method twice[] = {GOOD_ROWS, FETCH_ROW, FETCH_ROW, {NULL, RPC_UNARY, 0, NULL}};
    const struct rpc_method nobody[] = {
        GOOD_ROWS, {"FetchCode", RPC_SERVER_STREAM, 0, handle}, {NULL, RPC_UNARY, 0, NULL}};
    const struct rpc_method no_handler[] = {
        GOOD_ROWS, {"FetchCode", RPC_SERVER_STREAM, 1, NULL}, {NULL, RPC_UNARY, 0, NULL}};
    struct error err = {0};

    (void)state;
    assert_int_equal(check(missing, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "FetchCode"));
    assert_int_equal(check(unknown, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "Nope"));
    assert_int_equal(check(twice, &err), STATUS_INVALID);
    assert_int_equal(check(nobody, &err), STATUS_INVALID);
    assert_int_equal(check(no_handler, &err), STATUS_INVALID);
    assert_int_equal(check(NULL, &err), STATUS_INVALID);
}

static void path_is_package_service_method(void **state)
{
    char path[RPC_METHOD_PATH_MAX];

    (void)state;
    rpc_method_path(&pb__control__descriptor, rpc_method_find(&pb__control__descriptor, "Submit"),
                    path);
    assert_string_equal(path, "/rondo.v1.Control/Submit");
    assert_null(rpc_method_find(&pb__control__descriptor, "Nope"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complete_table_is_accepted),
        cmocka_unit_test(every_gap_is_named),
        cmocka_unit_test(path_is_package_service_method),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
