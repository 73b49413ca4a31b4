/* test_server_call.c - what no good client sends: the server must answer, and call no handler. */
#include "raw.h"

#define SUBMIT "/rondo.v1.Control/Submit"

static int setup(void **state)
{
    struct rig *rig = rig_create();

    rig_serve(rig, NULL);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

static struct raw_result send_bytes(struct rig *rig, const void *bytes, size_t len)
{
    return raw_call(rig, &(struct raw_request){SUBMIT, bytes, len});
}

static void garbage_is_invalid(void **state)
{
    struct rig *rig = *state;
    static const uint8_t cases[][4] = {
        {0xff, 0xff, 0xff, 0xff}, /* endless tag */
        {0x0a, 0x10, 'a', 'b'},   /* text cut short */
        {0x0b, 0x00, 0x00, 0x00}, /* a group */
        {0x00, 0x01, 0x00, 0x00}, /* field 0 */
        {0x12, 0x02, 0x0a, 0x05}, /* cut short inside a message */
        {0x0d, 0x01, 0x00, 0x00}, /* fixed32 cut short, wrong type for text */
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(send_bytes(rig, cases[i], 4).status, STATUS_INVALID);
    assert_int_equal(rig->submits, 0);
}

static void text_that_is_not_utf8_is_invalid(void **state)
{
    struct rig *rig = *state;
    struct raw_result result = send_bytes(rig, "\x0a\x02\xc3\x28", 4);

    assert_int_equal(result.status, STATUS_INVALID);
    assert_non_null(strstr(result.text, "request_id"));
    assert_int_equal(send_bytes(rig,
                                "\x0a\x03"
                                "a\0b",
                                5)
                         .status,
                     STATUS_INVALID);
    assert_int_equal(rig->submits, 0);
}

static void empty_message_is_a_message(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(send_bytes(rig, "", 0).status, STATUS_OK);
    assert_int_equal(rig->submits, 1);
}

static void missing_message_is_invalid(void **state)
{
    struct rig *rig = *state;
    struct raw_result result = raw_call(rig, &(struct raw_request){SUBMIT, NULL, 0});

    assert_int_equal(result.status, STATUS_INVALID);
    assert_int_equal(
        raw_call(rig, &(struct raw_request){"/rondo.v1.Control/Watch", NULL, 0}).status,
        STATUS_INVALID);
    assert_int_equal(rig->submits, 0);
}

static void unknown_method_is_unimplemented(void **state)
{
    struct rig *rig = *state;

    for (int i = 0; i < 40; i++) /* more than there are slots */
        assert_int_equal(
            raw_call(rig, &(struct raw_request){"/rondo.v1.Control/Nope", "", 0}).status,
            STATUS_UNIMPLEMENTED);
    assert_int_equal(raw_call(rig, &(struct raw_request){"/x", "", 0}).status,
                     STATUS_UNIMPLEMENTED);
}

static void oversize_message_is_refused(void **state)
{
    struct rig *rig = *state;
    size_t len = 5 << 20; /* the rig admits 4 MiB */
    char *bytes = mem_alloc(len);

    assert_int_equal(send_bytes(rig, bytes, len).status, STATUS_EXHAUSTED);
    assert_int_equal(rig->submits, 0);
    mem_free(bytes);
}

/* SubmitMany of two-byte empty requests: each would become a struct. */
static void small_bytes_cannot_fill_the_memory(void **state)
{
    struct rig *rig = *state;
    size_t len = 3 << 20;
    uint8_t *bytes = mem_alloc(len);

    for (size_t i = 0; i < len; i += 2)
        bytes[i] = 0x0a;
    struct raw_result result =
        raw_call(rig, &(struct raw_request){"/rondo.v1.Control/SubmitMany", bytes, len});
    assert_int_equal(result.status, STATUS_EXHAUSTED);
    mem_free(bytes);
}

static void bidi_answers_garbage(void **state)
{
    struct rig *rig = *state;
    struct raw_result result =
        raw_call(rig, &(struct raw_request){"/rondo.v1.Agents/Control", "\xff\xff\xff\xff", 4});

    assert_int_equal(result.status, STATUS_INVALID);
    RIG_UNTIL(rig, rig->closed == 1);
    assert_int_equal(rig->messages, 0);
}

static void client_stream_answers_garbage(void **state)
{
    struct rig *rig = *state;
    struct raw_result result =
        raw_call(rig, &(struct raw_request){"/rondo.v1.Control/PutCode", "\xff\xff\xff\xff", 4});

    assert_int_equal(result.status, STATUS_INVALID);
}

static void counts_tell_calls_and_refusals(void **state)
{
    struct rig *rig = *state;
    uint64_t calls, refused, open;

    send_bytes(rig, "", 0);
    send_bytes(rig, "\xff", 1);
    raw_call(rig, &(struct raw_request){"/x", "", 0});
    rpc_server_counts(rig->server, &calls, &refused, &open);
    assert_int_equal(calls, 3);
    assert_int_equal(refused, 2);
    RIG_UNTIL(rig, (rpc_server_counts(rig->server, &calls, &refused, &open), open == 0));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(garbage_is_invalid),
        CASE(text_that_is_not_utf8_is_invalid),
        CASE(empty_message_is_a_message),
        CASE(missing_message_is_invalid),
        CASE(unknown_method_is_unimplemented),
        CASE(oversize_message_is_refused),
        CASE(small_bytes_cannot_fill_the_memory),
        CASE(bidi_answers_garbage),
        CASE(client_stream_answers_garbage),
        CASE(counts_tell_calls_and_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
