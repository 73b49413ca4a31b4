/* test_ticket.c - tickets: what is signed is what is read; everything else is refused. */
#include "rpc/ticket.h"
#include "tests/unit/unit.h"

#define DIGEST "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static const unsigned char key[TICKET_KEY_BYTES] = "the secret of node n1, 32 bytes";
static const unsigned char other_key[TICKET_KEY_BYTES] = "the secret of node n2, 32 bytes";
static const char *const entries[] = {"manifest.json", "trainer-0"};
static const struct ticket_gate gate = {key, "n1", "n2", 1000000};

static struct ticket sample(void)
{
    return (struct ticket){7, 3, 2000000, "n1", "n2", "job-7/step-120.3", DIGEST, entries, 2};
}

static enum status sign(const struct ticket *ticket, struct text *out)
{
    text_init(out, 0);
    return ticket_sign(ticket, key, out, NULL);
}

static enum status open_as(const struct text *bytes, const struct ticket_gate *who)
{
    SCOPED(ticket_close) struct ticket *ticket = NULL;

    return ticket_open(bytes->data, bytes->len, who, &ticket, NULL);
}

static void what_is_signed_is_what_is_read(void **state)
{
    SCOPED(ticket_close) struct ticket *read = NULL;
    struct ticket ticket = sample();
    struct text bytes;

    (void)state;
    assert_int_equal(sign(&ticket, &bytes), STATUS_OK);
    assert_int_equal(ticket_open(bytes.data, bytes.len, &gate, &read, NULL), STATUS_OK);
    assert_int_equal(read->job, 7);
    assert_int_equal(read->attempt, 3);
    assert_int_equal(read->expires_us, 2000000);
    assert_string_equal(read->audience, "n1");
    assert_string_equal(read->bearer, "n2");
    assert_string_equal(read->path, ticket.path);
    assert_string_equal(read->digest, DIGEST);
    assert_int_equal(read->entries_count, 2);
    assert_string_equal(read->entries[1], "trainer-0");
    text_fini(&bytes);
}

static void every_flipped_bit_is_refused(void **state)
{
    struct ticket ticket = sample();
    struct text bytes;

    (void)state;
    assert_int_equal(sign(&ticket, &bytes), STATUS_OK);
    for (size_t bit = 0; bit < 8 * bytes.len; bit++) {
        char mask = (char)(1 << bit % 8);
        bytes.data[bit / 8] = (char)(bytes.data[bit / 8] ^ mask);
        assert_int_equal(open_as(&bytes, &gate), STATUS_UNAUTHENTICATED);
        bytes.data[bit / 8] = (char)(bytes.data[bit / 8] ^ mask);
    }
    assert_int_equal(open_as(&bytes, &gate), STATUS_OK);
    text_fini(&bytes);
}

static void every_length_but_its_own_is_refused(void **state)
{
    SCOPED(ticket_close) struct ticket *read = NULL;
    struct ticket ticket = sample();
    struct text bytes;

    (void)state;
    assert_int_equal(sign(&ticket, &bytes), STATUS_OK);
    for (size_t len = 0; len < bytes.len; len++)
        assert_int_equal(ticket_open(bytes.data, len, &gate, &read, NULL), STATUS_UNAUTHENTICATED);
    text_add_bytes(&bytes, "", 1);
    assert_int_equal(open_as(&bytes, &gate), STATUS_UNAUTHENTICATED);
    assert_null(read);
    text_fini(&bytes);
}

static void a_forged_or_foreign_ticket_is_refused(void **state)
{
    struct ticket_gate forged = gate, served = gate, asked = gate;
    struct ticket ticket = sample();
    struct text bytes;

    (void)state;
    forged.key = other_key;
    served.node = "n3";
    asked.peer = "n3";
    assert_int_equal(sign(&ticket, &bytes), STATUS_OK);
    assert_int_equal(open_as(&bytes, &forged), STATUS_UNAUTHENTICATED);
    assert_int_equal(open_as(&bytes, &served), STATUS_DENIED);
    assert_int_equal(open_as(&bytes, &asked), STATUS_DENIED);
    text_fini(&bytes);
}

static void a_ticket_ends_and_none_lives_long(void **state)
{
    struct ticket_gate late = gate;
    struct ticket ticket = sample();
    struct text bytes;

    (void)state;
    assert_int_equal(sign(&ticket, &bytes), STATUS_OK);
    late.now_us = 1999999;
    assert_int_equal(open_as(&bytes, &late), STATUS_OK);
    late.now_us = 2000000;
    assert_int_equal(open_as(&bytes, &late), STATUS_DEADLINE);
    text_fini(&bytes);
    ticket.expires_us = gate.now_us + TICKET_LIFE_US_MAX + 1;
    assert_int_equal(sign(&ticket, &bytes), STATUS_OK);
    assert_int_equal(open_as(&bytes, &gate), STATUS_DEADLINE);
    text_fini(&bytes);
    ticket.expires_us = INT64_MIN;
    assert_int_equal(sign(&ticket, &bytes), STATUS_OK);
    assert_int_equal(open_as(&bytes, &gate), STATUS_DEADLINE);
    text_fini(&bytes);
}

static void entries_are_covered_whole(void **state)
{
    static const char *const yes[] = {"manifest.json", "trainer-0", "trainer-0/a", "trainer-0/a/b"};
    static const char *const no[] = {"",
                                     "/",
                                     "trainer-00/a",
                                     "trainer-1/a",
                                     "trainer-0/../trainer-1/a",
                                     "trainer-0/",
                                     "trainer-0//a",
                                     "trainer-0/./a",
                                     "../x",
                                     "/manifest.json",
                                     "manifest.jso",
                                     "manifest.json2",
                                     "trainer-0/\xff"};
    struct ticket ticket = sample();

    (void)state;
    for (size_t i = 0; i < COUNT_OF(yes); i++)
        assert_true(ticket_covers(&ticket, yes[i]));
    for (size_t i = 0; i < COUNT_OF(no); i++)
        assert_false(ticket_covers(&ticket, no[i]));
}

static void what_is_no_ticket_is_not_signed(void **state)
{
    static const char *const up[] = {"trainer-0/../../x"};
    struct ticket cases[8];
    struct text bytes;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        cases[i] = sample();
    cases[0].audience = "";
    cases[1].bearer = NULL;
    cases[2].audience = "a/b";
    cases[3].path = "/etc";
    cases[4].digest = "abc";
    cases[5].entries_count = 0;
    cases[6].entries_count = TICKET_ENTRIES_MAX + 1;
    cases[7].entries = up;
    cases[7].entries_count = 1;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(sign(&cases[i], &bytes), STATUS_INVALID);
        assert_int_equal(bytes.len, 0);
        text_fini(&bytes);
    }
}

static void long_lists_are_bounded(void **state)
{
    const char *many[TICKET_ENTRIES_MAX];
    struct ticket ticket = sample();
    char name[1001];
    struct text bytes;

    (void)state;
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    for (size_t i = 0; i < COUNT_OF(many); i++)
        many[i] = "trainer-12345";
    ticket.entries = many;
    ticket.entries_count = COUNT_OF(many);
    assert_int_equal(sign(&ticket, &bytes), STATUS_OK);
    assert_int_equal(open_as(&bytes, &gate), STATUS_OK);
    text_fini(&bytes);
    for (size_t i = 0; i < COUNT_OF(many); i++)
        many[i] = name;
    assert_int_equal(sign(&ticket, &bytes), STATUS_INVALID);
    text_fini(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_signed_is_what_is_read),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(every_length_but_its_own_is_refused),
        cmocka_unit_test(a_forged_or_foreign_ticket_is_refused),
        cmocka_unit_test(a_ticket_ends_and_none_lives_long),
        cmocka_unit_test(entries_are_covered_whole),
        cmocka_unit_test(what_is_no_ticket_is_not_signed),
        cmocka_unit_test(long_lists_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
