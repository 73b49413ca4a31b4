/* test_identity.c - identities: what is read from a certificate, what is refused, who may use which
 * project. */
#include "rpc/identity.h"
#include "tests/unit/unit.h"

static enum status parse(const char *uri, const char *unit, struct identity *out)
{
    return identity_parse(uri, unit, out, NULL);
}

static void kinds_and_roles_are_read(void **state)
{
    struct identity who;
    char text[64];

    (void)state;
    assert_int_equal(parse("spiffe://rondo/user/ada", "role=admin,project=*", &who), STATUS_OK);
    assert_int_equal(who.roles, IDENTITY_ADMIN);
    identity_text(&who, text, sizeof text);
    assert_string_equal(text, "user/ada");
    assert_int_equal(
        parse("spiffe://rondo/user/bob", "role=submitter,role=viewer,project=a,project=b", &who),
        STATUS_OK);
    assert_int_equal(who.roles, IDENTITY_SUBMITTER | IDENTITY_VIEWER);
    assert_string_equal(who.projects, "a,b");
    assert_int_equal(parse("spiffe://rondo/agent/node-7", NULL, &who), STATUS_OK);
    assert_int_equal(who.roles, IDENTITY_AGENT);
    assert_int_equal(parse("spiffe://rondo/daemon/main", "role=viewer", &who), STATUS_OK);
    assert_int_equal(who.roles, IDENTITY_DAEMON);
    assert_int_equal(parse("spiffe://rondo/user/plain", NULL, &who), STATUS_OK);
    assert_int_equal(who.roles, IDENTITY_NONE);
}

static void names_are_decoded(void **state)
{
    struct identity who;

    (void)state;
    assert_int_equal(parse("spiffe://rondo/agent/k%C3%BCche%201", NULL, &who), STATUS_OK);
    assert_string_equal(who.name, "k\xc3\xbc"
                                  "che 1");
}

static void malformed_identities_are_refused(void **state)
{
    static const char *const uris[] = {
        "",
        "spiffe://rondo/",
        "spiffe://rondo/user",
        "spiffe://rondo/user/",
        "spiffe://rondo//ada",
        "spiffe://rondo/root/ada",
        "spiffe://other/user/ada",
        "https://rondo/user/ada",
        "spiffe://rondo/user/a/b",
        "spiffe://rondo/user/a%2Fb",
        "spiffe://rondo/user/a%00b",
        "spiffe://rondo/user/a%0Ab",
        "spiffe://rondo/user/a%",
        "spiffe://rondo/user/a%4",
        "spiffe://rondo/user/a%zz",
        "spiffe://rondo/user/%C3%28",
        "spiffe://rondo/averyveryverylongkind/ada",
    };
    struct identity who = {.name = "untouched"};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(uris); i++)
        assert_int_equal(parse(uris[i], NULL, &who), STATUS_UNAUTHENTICATED);
    assert_int_equal(parse(NULL, NULL, &who), STATUS_UNAUTHENTICATED);
    assert_string_equal(who.name, "untouched");
}

static void malformed_roles_are_refused(void **state)
{
    static const char *const units[] = {
        "role=root",   "role=",    "admin",      ",role=admin",           "role=admin,",
        "role=adminx", "project=", "ROLE=admin", "role=admin,,project=a", "role=agent"};
    struct identity who;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(units); i++)
        assert_int_equal(parse("spiffe://rondo/user/ada", units[i], &who), STATUS_UNAUTHENTICATED);
}

static void long_names_and_lists_are_bounded(void **state)
{
    char uri[400] = "spiffe://rondo/user/", unit[600] = "project=";
    struct identity who;

    (void)state;
    memset(uri + strlen(uri), 'n', 255);
    assert_int_equal(parse(uri, NULL, &who), STATUS_OK);
    uri[strlen(uri)] = 'n';
    assert_int_equal(parse(uri, NULL, &who), STATUS_UNAUTHENTICATED);
    memset(unit + 8, 'p', 512);
    assert_int_equal(parse("spiffe://rondo/user/a", unit, &who), STATUS_UNAUTHENTICATED);
}

static void projects_are_matched_whole(void **state)
{
    struct identity who = {.roles = IDENTITY_SUBMITTER, .projects = "alpha,beta"};
    struct identity all = {.roles = IDENTITY_SUBMITTER, .projects = "*"};
    struct identity none = {.roles = IDENTITY_SUBMITTER};
    struct identity admin = {.roles = IDENTITY_ADMIN};

    (void)state;
    assert_true(identity_may_use(&who, "alpha"));
    assert_true(identity_may_use(&who, "beta"));
    assert_false(identity_may_use(&who, "alph"));
    assert_false(identity_may_use(&who, "alpha,beta"));
    assert_false(identity_may_use(&who, "*"));
    assert_false(identity_may_use(&who, ""));
    assert_false(identity_may_use(&who, NULL));
    assert_true(identity_may_use(&all, "anything"));
    assert_false(identity_may_use(&none, "alpha"));
    assert_true(identity_may_use(&admin, "alpha"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_and_roles_are_read),
        cmocka_unit_test(names_are_decoded),
        cmocka_unit_test(malformed_identities_are_refused),
        cmocka_unit_test(malformed_roles_are_refused),
        cmocka_unit_test(long_names_and_lists_are_bounded),
        cmocka_unit_test(projects_are_matched_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
