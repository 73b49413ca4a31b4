#include "rpc/tls.h"
#include "base/mem.h"
#include "rpc/openssl.h"
#include <grpc/support/string_util.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <stdbool.h>
#include <string.h>

#define REFRESH_S     1
#define DAEMON_PREFIX "spiffe://rondo/daemon/"

/* Never asks on the terminal for the password of an encrypted key. */
static int no_password(char *out, int size, int writing, void *arg)
{
    (void)out;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

static enum status read_cert(const char *path, X509 **out, struct error *err)
{
    SCOPED(BIO_free_all) BIO *in = path ? BIO_new_file(path, "r") : NULL;

    *out = in ? PEM_read_bio_X509(in, NULL, no_password, NULL) : NULL;
    ERR_clear_error();
    if (!*out)
        return error_set(err, STATUS_INVALID, "no readable certificate in %s",
                         path ? path : "(no file)");
    return STATUS_OK;
}

enum status rpc_tls_check(const struct rpc_tls_files *files, struct error *err)
{
    SCOPED(X509_free) X509 *cert = NULL;
    SCOPED(X509_free) X509 *ca = NULL;
    enum status st = read_cert(files->cert, &cert, err);

    if (st != STATUS_OK || (st = read_cert(files->ca, &ca, err)) != STATUS_OK)
        return st;
    SCOPED(BIO_free_all) BIO *in = files->key ? BIO_new_file(files->key, "r") : NULL;
    SCOPED(EVP_PKEY_free)
    EVP_PKEY *key = in ? PEM_read_bio_PrivateKey(in, NULL, no_password, NULL) : NULL;
    bool fits = key && X509_check_private_key(cert, key) == 1;
    ERR_clear_error();
    if (!key)
        return error_set(err, STATUS_INVALID, "no readable key in %s",
                         files->key ? files->key : "(no file)");
    if (!fits)
        return error_set(err, STATUS_INVALID, "%s is not the key of %s", files->key, files->cert);
    return STATUS_OK;
}

static grpc_tls_credentials_options *options_create(const struct rpc_tls_files *files)
{
    grpc_tls_credentials_options *options = grpc_tls_credentials_options_create();
    grpc_tls_certificate_provider *provider = grpc_tls_certificate_provider_file_watcher_create(
        files->key, files->cert, files->ca, REFRESH_S);

    grpc_tls_credentials_options_set_certificate_provider(options, provider);
    grpc_tls_certificate_provider_release(provider);
    grpc_tls_credentials_options_watch_root_certs(options);
    grpc_tls_credentials_options_watch_identity_key_cert_pairs(options);
    if (files->crl_dir)
        grpc_tls_credentials_options_set_crl_directory(options, files->crl_dir);
    return options;
}

enum status rpc_tls_server(const struct rpc_tls_files *files, grpc_server_credentials **out,
                           struct error *err)
{
    enum status st = rpc_tls_check(files, err);

    if (st != STATUS_OK)
        return st;
    grpc_tls_credentials_options *options = options_create(files);
    grpc_tls_credentials_options_set_cert_request_type(
        options, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    *out = grpc_tls_server_credentials_create(options);
    return STATUS_OK;
}

/* Runs on gRPC's threads after the chain was verified: right host, and a daemon's certificate. */
static int verify_daemon(void *arg, grpc_tls_custom_verification_check_request *request,
                         grpc_tls_on_custom_verification_check_done_cb done, void *done_arg,
                         grpc_status_code *status, char **details)
{
    grpc_tls_certificate_verifier *host = grpc_tls_certificate_verifier_host_name_create();
    int sync = grpc_tls_certificate_verifier_verify(host, request, done, done_arg, status, details);
    bool daemon = false;

    (void)arg;
    grpc_tls_certificate_verifier_release(host);
    if (!sync || *status != GRPC_STATUS_OK)
        return sync;
    for (size_t i = 0; i < request->peer_info.san_names.uri_names_size; i++)
        daemon |= strncmp(request->peer_info.san_names.uri_names[i], DAEMON_PREFIX,
                          strlen(DAEMON_PREFIX)) == 0;
    if (!daemon) {
        *status = GRPC_STATUS_UNAUTHENTICATED;
        *details = gpr_strdup("the server's certificate is not a daemon's");
    }
    return 1;
}

static void verify_cancel(void *arg, grpc_tls_custom_verification_check_request *request)
{
    (void)arg; /* never asynchronous */
    (void)request;
}

static void verify_destruct(void *arg)
{
    (void)arg; /* static */
}

static grpc_tls_certificate_verifier_external daemon_verifier = {NULL, verify_daemon, verify_cancel,
                                                                 verify_destruct};

enum status rpc_tls_client(const struct rpc_tls_files *files, grpc_channel_credentials **out,
                           struct error *err)
{
    enum status st = rpc_tls_check(files, err);

    if (st != STATUS_OK)
        return st;
    grpc_tls_credentials_options *options = options_create(files);
    grpc_tls_certificate_verifier *verifier =
        grpc_tls_certificate_verifier_external_create(&daemon_verifier);
    grpc_tls_credentials_options_set_verify_server_cert(options, 1);
    grpc_tls_credentials_options_set_certificate_verifier(options, verifier);
    grpc_tls_certificate_verifier_release(verifier);
    *out = grpc_tls_credentials_create(options);
    return STATUS_OK;
}
