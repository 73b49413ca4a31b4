/* test_ca.c - the certificate authority: what it makes verifies, what it must not make is refused,
 * what is there is kept. */
#include "rpc/ca.h"
#include "rpc/openssl.h"
#include "tests/unit/unit.h"
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
    char *dir;
    char ca[200], out[200];
};

static int setup(void **state)
{
    struct place *place = NEW(struct place);

    place->dir = unit_dir_create();
    snprintf(place->ca, sizeof place->ca, "%s/ca", place->dir);
    snprintf(place->out, sizeof place->out, "%s/out", place->dir);
    assert_int_equal(ca_init(place->ca, "test", NULL), STATUS_OK);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;

    unit_dir_destroy(place->dir);
    mem_free(place);
    return 0;
}

static const char *path(const char *dir, const char *name)
{
    static char text[4][300];
    static unsigned at;

    at = (at + 1) % 4;
    snprintf(text[at], sizeof text[at], "%s/%s", dir, name);
    return text[at];
}

static X509 *cert_of(const char *file)
{
    FILE *in = fopen(file, "r");

    assert_non_null(in);
    X509 *cert = PEM_read_X509(in, NULL, NULL, NULL);
    fclose(in);
    assert_non_null(cert);
    return cert;
}

static enum status issue(struct place *place, struct ca_request request, struct error *err)
{
    return ca_issue(place->ca, &request, place->out, "me", err);
}

static unsigned mode_of(const char *file)
{
    struct stat st;

    assert_int_equal(stat(file, &st), 0);
    return st.st_mode & 0777;
}

static bool verifies(X509 *cert, X509 *ca, int purpose)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();

    X509_STORE_add_cert(store, ca);
    X509_STORE_CTX_init(context, store, cert, NULL);
    X509_STORE_CTX_set_purpose(context, purpose);
    X509_STORE_CTX_set_flags(context, X509_V_FLAG_X509_STRICT);
    bool good = X509_verify_cert(context) == 1;
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    return good;
}

static void issued_certificate_verifies_and_names_its_owner(void **state)
{
    struct place *place = *state;
    const char *hosts[] = {"node-7.example", "10.1.2.3", "fd00::7"};
    struct ca_request request = {"daemon", "node-7", NULL, hosts, 3, 0};

    assert_int_equal(issue(place, request, NULL), STATUS_OK);
    SCOPED(X509_free) X509 *cert = cert_of(path(place->out, "me.pem"));
    SCOPED(X509_free) X509 *ca = cert_of(path(place->out, "ca.pem"));
    assert_true(verifies(cert, ca, X509_PURPOSE_SSL_CLIENT));
    assert_true(verifies(cert, ca, X509_PURPOSE_SSL_SERVER));
    assert_int_equal(X509_check_host(cert, "node-7.example", 0, 0, NULL), 1);
    assert_int_equal(X509_check_host(cert, "other.example", 0, 0, NULL), 0);
    assert_int_equal(X509_check_ip_asc(cert, "10.1.2.3", 0), 1);
    assert_int_equal(X509_check_ip_asc(cert, "fd00::7", 0), 1);
    assert_int_equal(X509_check_ip_asc(cert, "10.1.2.4", 0), 0);
    assert_true(X509_cmp_current_time(X509_get0_notBefore(cert)) < 0);
}

static void users_certificate_is_no_servers(void **state)
{
    struct place *place = *state;
    struct ca_request request = {"user", "ada", "role=admin", NULL, 0, 1};

    assert_int_equal(issue(place, request, NULL), STATUS_OK);
    SCOPED(X509_free) X509 *cert = cert_of(path(place->out, "me.pem"));
    SCOPED(X509_free) X509 *ca = cert_of(path(place->ca, "ca.pem"));
    assert_true(verifies(cert, ca, X509_PURPOSE_SSL_CLIENT));
    assert_false(verifies(cert, ca, X509_PURPOSE_SSL_SERVER));
}

static void keys_are_private(void **state)
{
    struct place *place = *state;
    struct ca_request request = {"user", "ada", NULL, NULL, 0, 0};

    assert_int_equal(issue(place, request, NULL), STATUS_OK);
    assert_int_equal(mode_of(path(place->ca, "ca.key")), 0600);
    assert_int_equal(mode_of(path(place->out, "me.key")), 0600);
    assert_int_equal(mode_of(path(place->out, "me.pem")), 0644);
    assert_int_equal(mode_of(place->ca), 0700);
}

static void serials_differ(void **state)
{
    struct place *place = *state;
    struct ca_request request = {"user", "ada", NULL, NULL, 0, 0};

    assert_int_equal(issue(place, request, NULL), STATUS_OK);
    SCOPED(X509_free) X509 *first = cert_of(path(place->out, "me.pem"));
    assert_int_equal(issue(place, request, NULL), STATUS_OK);
    SCOPED(X509_free) X509 *second = cert_of(path(place->out, "me.pem"));
    assert_int_not_equal(
        ASN1_INTEGER_cmp(X509_get0_serialNumber(first), X509_get0_serialNumber(second)), 0);
}

static void existing_ca_is_kept(void **state)
{
    struct place *place = *state;
    SCOPED(X509_free) X509 *before = cert_of(path(place->ca, "ca.pem"));

    assert_int_equal(ca_init(place->ca, "other", NULL), STATUS_OK);
    SCOPED(X509_free) X509 *after = cert_of(path(place->ca, "ca.pem"));
    assert_int_equal(X509_cmp(before, after), 0);
}

/* The state after a crash between key and certificate. */
static void key_without_certificate_is_used(void **state)
{
    struct place *place = *state;
    SCOPED(X509_free) X509 *before = cert_of(path(place->ca, "ca.pem"));

    assert_int_equal(unlink(path(place->ca, "ca.pem")), 0);
    assert_int_equal(ca_init(place->ca, "test", NULL), STATUS_OK);
    SCOPED(X509_free) X509 *after = cert_of(path(place->ca, "ca.pem"));
    assert_int_equal(EVP_PKEY_eq(X509_get0_pubkey(before), X509_get0_pubkey(after)), 1);
}

static void certificate_without_key_is_refused(void **state)
{
    struct place *place = *state;

    assert_int_equal(unlink(path(place->ca, "ca.key")), 0);
    assert_int_equal(ca_init(place->ca, "test", NULL), STATUS_PRECONDITION);
    assert_int_equal(access(path(place->ca, "ca.key"), F_OK), -1);
}

static void bad_requests_are_refused(void **state)
{
    struct place *place = *state;
    char long_name[300] = {0};
    const char *bad_host[] = {"a,URI:spiffe://rondo/user/root"};
    const char *no_host[] = {""};
    memset(long_name, 'n', 254);
    const struct ca_request bad[] = {
        {"root", "ada", NULL, NULL, 0, 0},       {"user", "", NULL, NULL, 0, 0},
        {"user", NULL, NULL, NULL, 0, 0},        {NULL, "ada", NULL, NULL, 0, 0},
        {"user", "a/b", NULL, NULL, 0, 0},       {"user", "a\nb", NULL, NULL, 0, 0},
        {"user", "\xc3\x28", NULL, NULL, 0, 0},  {"user", long_name, NULL, NULL, 0, 0},
        {"user", "ada", "role=god", NULL, 0, 0}, {"user", "ada", NULL, NULL, 0, 100000},
        {"user", "ada", NULL, bad_host, 1, 0},   {"user", "ada", NULL, no_host, 1, 0},
    };

    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct error err = {0};
        assert_int_equal(issue(place, bad[i], &err), STATUS_INVALID);
        assert_true(err.text[0] != '\0');
    }
    assert_int_equal(access(path(place->out, "me.key"), F_OK), -1);
}

static void longest_name_survives_the_round_trip(void **state)
{
    struct place *place = *state;
    char name[254] = {0};

    for (size_t i = 0; i < 253; i++)
        name[i] = "\xe2\x82\xac"[i % 3];
    name[252] = '\0'; /* 84 characters of three bytes */
    struct ca_request request = {"agent", name, NULL, NULL, 0, 0};
    assert_int_equal(issue(place, request, NULL), STATUS_OK);
    SCOPED(X509_free) X509 *cert = cert_of(path(place->out, "me.pem"));
    SCOPED(X509_free) X509 *ca = cert_of(path(place->ca, "ca.pem"));
    assert_true(verifies(cert, ca, X509_PURPOSE_SSL_CLIENT));
}

static void only_own_certificates_are_revoked(void **state)
{
    struct place *place = *state;
    SCOPED_TEXT char *other = mem_printf("%s/other", place->dir);
    struct ca_request request = {"user", "ada", NULL, NULL, 0, 0};

    assert_int_equal(ca_init(other, "other", NULL), STATUS_OK);
    assert_int_equal(ca_issue(other, &request, place->out, "me", NULL), STATUS_OK);
    assert_int_equal(ca_revoke(place->ca, path(place->out, "me.pem"), NULL), STATUS_INVALID);
    assert_int_equal(ca_revoke(place->ca, path(place->out, "none.pem"), NULL), STATUS_NOT_FOUND);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(issued_certificate_verifies_and_names_its_owner),
        CASE(users_certificate_is_no_servers),
        CASE(keys_are_private),
        CASE(serials_differ),
        CASE(existing_ca_is_kept),
        CASE(key_without_certificate_is_used),
        CASE(certificate_without_key_is_refused),
        CASE(bad_requests_are_refused),
        CASE(longest_name_survives_the_round_trip),
        CASE(only_own_certificates_are_revoked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
