/* test_listener.c - addresses as text, and sockets on them. */
#include "daemon/listener.h"
#include "tests/unit/unit.h"
#include <unistd.h>

static void addresses_are_taken_apart(void **state)
{
    char host[64];
    uint16_t port;

    (void)state;
    assert_int_equal(listener_parse("127.0.0.1:7411", host, sizeof(host), &port, NULL), STATUS_OK);
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(port, 7411);
    assert_int_equal(listener_parse("[::1]:0", host, sizeof(host), &port, NULL), STATUS_OK);
    assert_string_equal(host, "::1");
    static const char *const bad[] = {"", "host", ":1", "a:70000", "a:-1", "a:1x", "a:"};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(listener_parse(bad[i], host, sizeof(host), &port, NULL), STATUS_INVALID);
}

static void loopback_is_known(void **state)
{
    (void)state;
    assert_true(listener_is_loopback("127.0.0.1:1") && listener_is_loopback("localhost:1") &&
                listener_is_loopback("[::1]:1"));
    assert_false(listener_is_loopback("0.0.0.0:1") || listener_is_loopback("[::]:1"));
}

static void a_taken_port_is_refused(void **state)
{
    SCOPED_TEXT char *taken = NULL;
    uint16_t port, other;
    int first, second;
    struct error err;

    (void)state;
    assert_int_equal(listener_open("127.0.0.1:0", &first, &port, NULL), STATUS_OK);
    assert_true(port > 0);
    taken = mem_printf("localhost:%u", port);
    assert_int_equal(listener_open(taken, &second, &other, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "in use"));
    close(first);
    assert_int_equal(listener_open("no.such.name:1", &second, &other, NULL), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_taken_apart),
        cmocka_unit_test(loopback_is_known),
        cmocka_unit_test(a_taken_port_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
