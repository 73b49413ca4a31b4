#include "rpc/peer.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/text.h"
#include "rpc/openssl.h"
#include <grpc/grpc_security.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CACHE_MAX 20000 /* certificates; past it all are forgotten and read again */

struct rpc_peers {
    const struct rpc_crl *crl;
    struct map *by_pem; /* text of certificate -> struct rpc_peer */
    struct rpc_peer *local;
};

void rpc_peer_drop(struct rpc_peer *peer)
{
    if (!peer || --peer->holds > 0)
        return;
    mem_free(peer->serial);
    mem_free(peer);
}

static struct rpc_peer *peer_create(void)
{
    struct rpc_peer *peer = NEW(struct rpc_peer);

    peer->holds = 1;
    return peer;
}

/* The one URI among the alternative names; false when there is none, or more. */
static bool cert_uri(X509 *cert, char *out, size_t cap)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    unsigned uris = 0;
    bool good = true;

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI)
            continue;
        const char *text = (const char *)ASN1_STRING_get0_data(name->d.uniformResourceIdentifier);
        int len = ASN1_STRING_length(name->d.uniformResourceIdentifier);
        uris++;
        if (len <= 0 || (size_t)len >= cap || memchr(text, 0, (size_t)len)) {
            good = false;
            continue;
        }
        memcpy(out, text, (size_t)len);
        out[len] = '\0';
    }
    GENERAL_NAMES_free(names);
    return good && uris == 1;
}

/* All organisational units, joined by commas. */
static void cert_units(X509 *cert, struct text *out)
{
    const X509_NAME *subject = X509_get_subject_name(cert);

    for (int at = -1;
         (at = X509_NAME_get_index_by_NID(subject, NID_organizationalUnitName, at)) >= 0;) {
        unsigned char *utf8 = NULL;
        int len =
            ASN1_STRING_to_UTF8(&utf8, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
        if (out->len > 0)
            text_add(out, ",");
        if (len > 0)
            text_add_bytes(out, utf8, (size_t)len);
        OPENSSL_free(utf8);
    }
}

static char *cert_serial(const X509 *cert)
{
    BIGNUM *number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert), NULL);
    char *hex = number ? BN_bn2hex(number) : NULL;
    char *serial = mem_strdup(hex ? hex : "");

    OPENSSL_free(hex);
    BN_free(number);
    return serial;
}

static enum status cert_read(const char *pem, size_t len, struct rpc_peer **out, struct error *err)
{
    SCOPED(BIO_free_all) BIO *in = len < INT32_MAX ? BIO_new_mem_buf(pem, (int)len) : NULL;
    SCOPED(X509_free) X509 *cert = in ? PEM_read_bio_X509(in, NULL, NULL, NULL) : NULL;
    struct identity who;
    struct tm tm = {0};
    struct text units;
    char uri[1024];

    ERR_clear_error();
    if (!cert || !cert_uri(cert, uri, sizeof uri) ||
        ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) != 1)
        return error_set(err, STATUS_UNAUTHENTICATED, "the certificate names no Rondo identity");
    text_init(&units, 2048);
    cert_units(cert, &units);
    enum status st = units.full || strlen(text_get(&units)) != units.len
                         ? error_set(err, STATUS_UNAUTHENTICATED, "malformed unit in certificate")
                         : identity_parse(uri, text_get(&units), &who, err);
    text_fini(&units);
    if (st != STATUS_OK)
        return st;
    struct rpc_peer *peer = peer_create();
    peer->identity = who;
    peer->serial = cert_serial(cert);
    peer->expires_s = (int64_t)timegm(&tm);
    *out = peer;
    return STATUS_OK;
}

enum status rpc_peers_check(const struct rpc_peers *peers, const struct rpc_peer *peer,
                            struct error *err)
{
    if (!peer->serial)
        return STATUS_OK;
    if (rpc_crl_has(peers->crl, peer->serial))
        return error_set(err, STATUS_UNAUTHENTICATED, "the certificate of %s/%s was revoked",
                         peer->identity.kind, peer->identity.name);
    if ((int64_t)time(NULL) > peer->expires_s)
        return error_set(err, STATUS_UNAUTHENTICATED, "the certificate of %s/%s has expired",
                         peer->identity.kind, peer->identity.name);
    return STATUS_OK;
}

static void cache_clear(struct rpc_peers *peers)
{
    struct rpc_peer *peer;

    for (size_t at = 0; (peer = map_next(peers->by_pem, &at));)
        rpc_peer_drop(peer);
    map_destroy(peers->by_pem);
    peers->by_pem = map_create();
}

static enum status peer_of_pem(struct rpc_peers *peers, const char *pem, size_t len,
                               struct rpc_peer **out, struct error *err)
{
    SCOPED_TEXT char *key = mem_array(len + 1, 1);
    enum status st = STATUS_OK;

    memcpy(key, pem, len);
    struct rpc_peer *peer = map_get_text(peers->by_pem, key);
    if (!peer) {
        if ((st = cert_read(pem, len, &peer, err)) != STATUS_OK)
            return st;
        if (map_count(peers->by_pem) >= CACHE_MAX)
            cache_clear(peers);
        map_put_text(peers->by_pem, key, peer);
    }
    if ((st = rpc_peers_check(peers, peer, err)) != STATUS_OK)
        return st;
    peer->holds++;
    *out = peer;
    return STATUS_OK;
}

static const grpc_auth_property *property(const grpc_auth_context *context, const char *name)
{
    grpc_auth_property_iterator at = grpc_auth_context_find_properties_by_name(context, name);

    return grpc_auth_property_iterator_next(&at);
}

static bool is_plain(const grpc_auth_context *context)
{
    const grpc_auth_property *type = property(context, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);

    return !type || (strcmp(type->value, GRPC_SSL_TRANSPORT_SECURITY_TYPE) != 0 &&
                     strcmp(type->value, GRPC_TLS_TRANSPORT_SECURITY_TYPE) != 0);
}

enum status rpc_peers_of_call(struct rpc_peers *peers, grpc_call *call, struct rpc_peer **out,
                              struct error *err)
{
    grpc_auth_context *context = grpc_call_auth_context(call);
    enum status st;

    if (!context || is_plain(context)) {
        st = peers->local ? STATUS_OK
                          : error_set(err, STATUS_UNAUTHENTICATED, "a certificate is needed");
        if (st == STATUS_OK) {
            peers->local->holds++;
            *out = peers->local;
        }
    } else {
        const grpc_auth_property *pem = property(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
        st = pem ? peer_of_pem(peers, pem->value, pem->value_length, out, err)
                 : error_set(err, STATUS_UNAUTHENTICATED, "a certificate is needed");
    }
    if (context)
        grpc_auth_context_release(context);
    return st;
}

struct rpc_peers *rpc_peers_create(const struct rpc_crl *crl, bool local)
{
    struct rpc_peers *peers = NEW(struct rpc_peers);

    peers->crl = crl;
    peers->by_pem = map_create();
    if (local) {
        peers->local = peer_create();
        peers->local->identity = (struct identity){
            .roles = IDENTITY_ADMIN, .kind = "user", .name = "local", .projects = "*"};
    }
    return peers;
}

void rpc_peers_destroy(struct rpc_peers *peers)
{
    if (!peers)
        return;
    cache_clear(peers);
    map_destroy(peers->by_pem);
    rpc_peer_drop(peers->local);
    mem_free(peers);
}
