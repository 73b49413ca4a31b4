/* A CA folder: ca.key (0600), ca.pem, crl.pem, crl/<hash>.r0, and `lock`, held while it changes. */
#include "rpc/ca.h"
#include "base/text.h"
#include "rpc/ca_file.h"
#include "rpc/identity.h"
#include "rpc/openssl.h"
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define CA_DAYS      3650
#define DAYS_MAX     3650
#define DAYS_DEFAULT 365
#define BACKDATE_S   300
#define HOSTS_MAX    64
#define SERIAL_BYTES 16

static enum status ssl_error(struct error *err, const char *what)
{
    char text[160];

    ERR_error_string_n(ERR_get_error(), text, sizeof text);
    ERR_clear_error();
    return error_set(err, STATUS_INTERNAL, "%s: %s", what, text);
}

/* --- parts of a certificate */

static bool set_serial(X509 *cert)
{
    unsigned char bytes[SERIAL_BYTES];

    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and always of one length */
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool good = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return good;
}

/* Straight as UTF-8: the length limits of X.520 (64) are below our names. */
static bool add_name(X509_NAME *name, int nid, const char *value)
{
    return X509_NAME_add_entry_by_NID(name, nid, V_ASN1_UTF8STRING, (const unsigned char *)value,
                                      (int)strlen(value), -1, 0) == 1;
}

static bool add_text_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;

    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool good = extension && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

static bool set_times(X509 *cert, uint32_t days)
{
    return X509_gmtime_adj(X509_getm_notBefore(cert), -BACKDATE_S) &&
           X509_time_adj_ex(X509_getm_notAfter(cert), (int)days, 0, NULL);
}

static bool add_general(GENERAL_NAMES *names, int type, void *value)
{
    GENERAL_NAME *name = value ? GENERAL_NAME_new() : NULL;

    if (!name)
        return false;
    GENERAL_NAME_set0_value(name, type, value);
    if (sk_GENERAL_NAME_push(names, name) > 0)
        return true;
    GENERAL_NAME_free(name);
    return false;
}

static ASN1_STRING *ia5(const char *text)
{
    ASN1_STRING *string = ASN1_STRING_type_new(V_ASN1_IA5STRING);

    if (string && ASN1_STRING_set(string, text, (int)strlen(text)) != 1) {
        ASN1_STRING_free(string);
        return NULL;
    }
    return string;
}

static bool add_host(GENERAL_NAMES *names, const char *host)
{
    unsigned char address[16];
    bool ip4 = inet_pton(AF_INET, host, address) == 1;

    if (!ip4 && inet_pton(AF_INET6, host, address) != 1)
        return add_general(names, GEN_DNS, ia5(host));
    ASN1_OCTET_STRING *bytes = ASN1_OCTET_STRING_new();
    if (bytes)
        ASN1_OCTET_STRING_set(bytes, address, ip4 ? 4 : 16);
    return add_general(names, GEN_IPADD, bytes);
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-._~@+", c));
}

/* spiffe://rondo/<kind>/<name>, bytes outside the plain ones as %XX. */
static void make_uri(const struct ca_request *request, struct text *out)
{
    text_addf(out, "spiffe://rondo/%s/", request->kind);
    for (const char *at = request->name; *at; at++) {
        if (is_plain(*at))
            text_add_bytes(out, at, 1);
        else
            text_addf(out, "%%%02X", (unsigned char)*at);
    }
}

static bool add_alternative_names(X509 *cert, const struct ca_request *request)
{
    GENERAL_NAMES *names = GENERAL_NAMES_new();
    struct text uri;
    bool good;

    text_init(&uri, 2048);
    make_uri(request, &uri);
    good = names && add_general(names, GEN_URI, ia5(text_get(&uri)));
    for (size_t i = 0; good && i < request->hosts_count; i++)
        good = add_host(names, request->hosts[i]);
    good = good && X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0, 0) == 1;
    text_fini(&uri);
    GENERAL_NAMES_free(names);
    return good;
}

/* --- whole certificates */

static enum status make_ca(EVP_PKEY *key, const char *cluster, X509 **out, struct error *err)
{
    SCOPED(X509_free) X509 *cert = X509_new();
    SCOPED_TEXT char *title = mem_printf("Rondo CA %s", cluster);
    X509_NAME *name = cert ? X509_get_subject_name(cert) : NULL;

    if (!cert || !X509_set_version(cert, 2) || !set_serial(cert) || !set_times(cert, CA_DAYS) ||
        !add_name(name, NID_commonName, title) || !add_name(name, NID_organizationName, "rondo") ||
        !X509_set_issuer_name(cert, name) || !X509_set_pubkey(cert, key) ||
        !add_text_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !add_text_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        !add_text_extension(cert, cert, NID_subject_key_identifier, "hash") ||
        !X509_sign(cert, key, EVP_sha256()))
        return ssl_error(err, "make CA certificate");
    *out = TAKE(cert);
    return STATUS_OK;
}

/* Only a daemon may be taken for a server of gRPC; an agent serves shards to its peers. */
static const char *extended_use(const char *kind)
{
    return strcmp(kind, "user") == 0 ? "clientAuth" : "clientAuth,serverAuth";
}

static enum status make_cert(const struct ca_request *request, X509 *ca, EVP_PKEY *ca_key,
                             EVP_PKEY *key, X509 **out, struct error *err)
{
    SCOPED(X509_free) X509 *cert = X509_new();
    X509_NAME *name = cert ? X509_get_subject_name(cert) : NULL;

    if (!cert || !X509_set_version(cert, 2) || !set_serial(cert) ||
        !set_times(cert, request->days ? request->days : DAYS_DEFAULT) ||
        !add_name(name, NID_commonName, request->name) ||
        (request->unit && !add_name(name, NID_organizationalUnitName, request->unit)) ||
        !add_name(name, NID_organizationName, "rondo") ||
        !X509_set_issuer_name(cert, X509_get_subject_name(ca)) || !X509_set_pubkey(cert, key) ||
        !add_text_extension(cert, ca, NID_basic_constraints, "critical,CA:FALSE") ||
        !add_text_extension(cert, ca, NID_key_usage, "critical,digitalSignature") ||
        !add_text_extension(cert, ca, NID_ext_key_usage, extended_use(request->kind)) ||
        !add_text_extension(cert, ca, NID_subject_key_identifier, "hash") ||
        !add_text_extension(cert, ca, NID_authority_key_identifier, "keyid") ||
        !add_alternative_names(cert, request) || !X509_sign(cert, ca_key, EVP_sha256()))
        return ssl_error(err, "make certificate");
    *out = TAKE(cert);
    return STATUS_OK;
}

/* --- verbs */

static enum status init_locked(const char *dir, const char *cluster, struct error *err)
{
    SCOPED(EVP_PKEY_free) EVP_PKEY *key = NULL;
    SCOPED(X509_free) X509 *cert = NULL;
    enum status st = ca_file_read_key(dir, "ca.key", &key, err);
    bool had_key = st == STATUS_OK;

    if (st != STATUS_OK && st != STATUS_NOT_FOUND)
        return st;
    st = ca_file_read_cert(dir, "ca.pem", &cert, err);
    if (st == STATUS_OK && !had_key)
        return error_set(err, STATUS_PRECONDITION, "%s/ca.pem is there, but not its key", dir);
    if (st != STATUS_NOT_FOUND)
        return st;
    /* A key without certificate is what an interrupted start leaves: it is used, never replaced. */
    if (!had_key) {
        key = EVP_EC_gen("P-256");
        if (!key)
            return ssl_error(err, "make CA key");
        if ((st = ca_file_write_key(dir, "ca.key", key, err)) != STATUS_OK)
            return st;
    }
    if ((st = make_ca(key, cluster, &cert, err)) != STATUS_OK ||
        (st = ca_file_write_crl(dir, cert, key, NULL, err)) != STATUS_OK)
        return st;
    return ca_file_write_cert(dir, "ca.pem", cert, err);
}

enum status ca_init(const char *dir, const char *cluster, struct error *err)
{
    int lock = -1;
    enum status st;

    if (!text_is_utf8(cluster, strlen(cluster)) || strlen(cluster) > 253)
        return error_set(err, STATUS_INVALID, "cluster name: at most 253 bytes of UTF-8 text");
    if ((st = ca_file_dir(dir, err)) != STATUS_OK || (st = ca_file_lock(dir, &lock, err)))
        return st;
    st = init_locked(dir, cluster, err);
    ca_file_unlock(lock);
    return st;
}

static enum status check_request(const struct ca_request *request, struct error *err)
{
    size_t len = request->name ? strlen(request->name) : 0;

    if (!request->kind || (strcmp(request->kind, "user") != 0 &&
                           strcmp(request->kind, "agent") != 0 && strcmp(request->kind, "daemon")))
        return error_set(err, STATUS_INVALID, "kind must be user, agent or daemon");
    if (len == 0 || len > 253 || strchr(request->name, '/') || !text_is_utf8(request->name, len))
        return error_set(err, STATUS_INVALID, "name: 1 to 253 bytes of UTF-8 text without '/'");
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)request->name[i] < 0x20 || request->name[i] == 0x7f)
            return error_set(err, STATUS_INVALID, "name holds a control character");
    if (request->days > DAYS_MAX)
        return error_set(err, STATUS_INVALID, "at most %d days", DAYS_MAX);
    if (request->hosts_count > HOSTS_MAX)
        return error_set(err, STATUS_INVALID, "at most %d hosts", HOSTS_MAX);
    for (size_t i = 0; i < request->hosts_count; i++) {
        size_t host = strlen(request->hosts[i]);
        if (host == 0 || host > 253 || strpbrk(request->hosts[i], " \t\r\n,/"))
            return error_set(err, STATUS_INVALID, "host name: 1 to 253 plain characters");
    }
    struct text uri;
    struct identity ignored;
    struct error why = {0};
    text_init(&uri, 2048);
    make_uri(request, &uri);
    enum status st = identity_parse(text_get(&uri), request->unit, &ignored, &why);
    text_fini(&uri);
    return st == STATUS_OK ? STATUS_OK
                           : error_set(err, STATUS_INVALID, "would be refused: %s", why.text);
}

enum status ca_issue(const char *ca_dir, const struct ca_request *request, const char *out_dir,
                     const char *file, struct error *err)
{
    SCOPED(EVP_PKEY_free) EVP_PKEY *ca_key = NULL;
    SCOPED(EVP_PKEY_free) EVP_PKEY *key = NULL;
    SCOPED(X509_free) X509 *ca = NULL;
    SCOPED(X509_free) X509 *cert = NULL;
    SCOPED_TEXT char *key_name = mem_printf("%s.key", file);
    SCOPED_TEXT char *cert_name = mem_printf("%s.pem", file);
    enum status st = check_request(request, err);

    if (st != STATUS_OK || (st = ca_file_read_key(ca_dir, "ca.key", &ca_key, err)) ||
        (st = ca_file_read_cert(ca_dir, "ca.pem", &ca, err)))
        return st;
    if (!(key = EVP_EC_gen("P-256")))
        return ssl_error(err, "make key");
    if ((st = make_cert(request, ca, ca_key, key, &cert, err)) != STATUS_OK ||
        (st = ca_file_dir(out_dir, err)) || (st = ca_file_write_key(out_dir, key_name, key, err)) ||
        (st = ca_file_write_cert(out_dir, cert_name, cert, err)))
        return st;
    return ca_file_is_same_dir(ca_dir, out_dir) ? STATUS_OK
                                                : ca_file_write_cert(out_dir, "ca.pem", ca, err);
}

enum status ca_revoke(const char *ca_dir, const char *cert_path, struct error *err)
{
    SCOPED(EVP_PKEY_free) EVP_PKEY *ca_key = NULL;
    SCOPED(X509_free) X509 *ca = NULL;
    SCOPED(X509_free) X509 *cert = NULL;
    enum status st = ca_file_read_key(ca_dir, "ca.key", &ca_key, err);
    int lock = -1;

    if (st != STATUS_OK || (st = ca_file_read_cert(ca_dir, "ca.pem", &ca, err)) ||
        (st = ca_file_read_cert(NULL, cert_path, &cert, err)))
        return st;
    if (X509_verify(cert, X509_get0_pubkey(ca)) != 1) {
        ERR_clear_error();
        return error_set(err, STATUS_INVALID, "%s was not issued by this CA", cert_path);
    }
    if ((st = ca_file_lock(ca_dir, &lock, err)) != STATUS_OK)
        return st;
    st = ca_file_write_crl(ca_dir, ca, ca_key, X509_get0_serialNumber(cert), err);
    ca_file_unlock(lock);
    return st;
}
