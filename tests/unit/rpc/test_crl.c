/* test_crl.c - what is revoked is listed, and a damaged list loses nothing. */
#include "rpc/ca.h"
#include "rpc/crl.h"
#include "rpc/openssl.h"
#include "tests/unit/unit.h"
#include <openssl/pem.h>

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

static char *serial_of(const char *file)
{
    SCOPED(X509_free) X509 *cert = cert_of(file);
    BIGNUM *number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert), NULL);
    char *hex = BN_bn2hex(number);
    char *copy = mem_strdup(hex);

    OPENSSL_free(hex);
    BN_free(number);
    return copy;
}

static void revoked_serials_are_listed(void **state)
{
    struct place *place = *state;
    struct ca_request request = {"user", "ada", NULL, NULL, 0, 0};
    const char *cert = path(place->out, "me.pem");
    SCOPED_TEXT char *dir = mem_printf("%s/crl", place->ca);
    struct rpc_crl *crl = rpc_crl_create(dir, path(place->ca, "ca.pem"));

    assert_int_equal(issue(place, request, NULL), STATUS_OK);
    SCOPED_TEXT char *first = serial_of(cert);
    assert_false(rpc_crl_has(crl, first));
    assert_false(rpc_crl_refresh(crl));
    assert_int_equal(ca_revoke(place->ca, cert, NULL), STATUS_OK);
    assert_int_equal(ca_revoke(place->ca, cert, NULL), STATUS_OK); /* twice is fine */
    assert_true(rpc_crl_refresh(crl));
    assert_true(rpc_crl_has(crl, first));
    assert_int_equal(issue(place, request, NULL), STATUS_OK);
    SCOPED_TEXT char *second = serial_of(cert);
    assert_int_equal(ca_revoke(place->ca, cert, NULL), STATUS_OK);
    assert_true(rpc_crl_refresh(crl));
    assert_true(rpc_crl_has(crl, first) && rpc_crl_has(crl, second));
    rpc_crl_destroy(crl);
}

static void damaged_list_keeps_what_was_known(void **state)
{
    struct place *place = *state;
    struct ca_request request = {"user", "ada", NULL, NULL, 0, 0};
    SCOPED_TEXT char *dir = mem_printf("%s/crl", place->ca);
    SCOPED_TEXT char *junk = mem_printf("%s/00000000.r0", dir);

    assert_int_equal(issue(place, request, NULL), STATUS_OK);
    assert_int_equal(ca_revoke(place->ca, path(place->out, "me.pem"), NULL), STATUS_OK);
    struct rpc_crl *crl = rpc_crl_create(dir, path(place->ca, "ca.pem"));
    SCOPED_TEXT char *serial = serial_of(path(place->out, "me.pem"));
    assert_true(rpc_crl_has(crl, serial));
    assert_int_equal(file_write_atomic(junk, "junk", 4, 0644, NULL), STATUS_OK);
    assert_false(rpc_crl_refresh(crl));
    assert_true(rpc_crl_has(crl, serial));
    rpc_crl_destroy(crl);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(revoked_serials_are_listed),
        CASE(damaged_list_keeps_what_was_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
