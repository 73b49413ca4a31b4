#include "rpc/ca_file.h"
#include "base/file.h"
#include "rpc/openssl.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CRL_DAYS    3650 /* a list that has run out would lock everybody out */
#define REVOKED_MAX 1000000

static char *path_of(const char *dir, const char *name)
{
    return dir ? mem_printf("%s/%s", dir, name) : mem_strdup(name);
}

enum status ca_file_dir(const char *dir, struct error *err)
{
    return file_make_dirs(dir, 0700, err);
}

bool ca_file_is_same_dir(const char *a, const char *b)
{
    struct stat sa, sb;

    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_ino == sb.st_ino &&
           sa.st_dev == sb.st_dev;
}

enum status ca_file_lock(const char *dir, int *out, struct error *err)
{
    SCOPED_TEXT char *path = path_of(dir, "lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return error_set(err, STATUS_UNAVAILABLE, "open %s: %s", path, strerror(errno));
    while (flock(fd, LOCK_EX) != 0)
        if (errno != EINTR) {
            error_set(err, STATUS_UNAVAILABLE, "lock %s: %s", path, strerror(errno));
            close(fd);
            return STATUS_UNAVAILABLE;
        }
    *out = fd;
    return STATUS_OK;
}

void ca_file_unlock(int lock)
{
    close(lock);
}

/* --- reading */

static int no_password(char *out, int size, int writing, void *arg)
{
    (void)out;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

static enum status open_file(const char *path, BIO **out, struct error *err)
{
    errno = 0;
    *out = BIO_new_file(path, "r");
    ERR_clear_error();
    if (*out)
        return STATUS_OK;
    return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE, "open %s: %s",
                     path, strerror(errno));
}

enum status ca_file_read_key(const char *dir, const char *name, EVP_PKEY **out, struct error *err)
{
    SCOPED_TEXT char *path = path_of(dir, name);
    SCOPED(BIO_free_all) BIO *in = NULL;
    enum status st = open_file(path, &in, err);

    if (st != STATUS_OK)
        return st;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(in, NULL, no_password, NULL);
    ERR_clear_error();
    if (!key)
        return error_set(err, STATUS_INVALID, "%s holds no readable key", path);
    *out = key;
    return STATUS_OK;
}

enum status ca_file_read_cert(const char *dir, const char *name, X509 **out, struct error *err)
{
    SCOPED_TEXT char *path = path_of(dir, name);
    SCOPED(BIO_free_all) BIO *in = NULL;
    enum status st = open_file(path, &in, err);

    if (st != STATUS_OK)
        return st;
    X509 *cert = PEM_read_bio_X509(in, NULL, no_password, NULL);
    ERR_clear_error();
    if (!cert)
        return error_set(err, STATUS_INVALID, "%s holds no readable certificate", path);
    *out = cert;
    return STATUS_OK;
}

/* --- writing */

/* Replaces path by what the memory BIO holds. */
static enum status put_file(const char *path, BIO *content, mode_t mode, struct error *err)
{
    char *bytes = NULL;
    long len = BIO_get_mem_data(content, &bytes);

    return file_write_atomic(path, bytes, (size_t)len, mode, err);
}

enum status ca_file_write_key(const char *dir, const char *name, EVP_PKEY *key, struct error *err)
{
    SCOPED_TEXT char *path = path_of(dir, name);
    SCOPED(BIO_free_all) BIO *out = BIO_new(BIO_s_secmem());

    if (!out || PEM_write_bio_PKCS8PrivateKey(out, key, NULL, NULL, 0, NULL, NULL) != 1)
        return error_set(err, STATUS_INTERNAL, "encode %s", path);
    return put_file(path, out, 0600, err);
}

enum status ca_file_write_cert(const char *dir, const char *name, X509 *cert, struct error *err)
{
    SCOPED_TEXT char *path = path_of(dir, name);
    SCOPED(BIO_free_all) BIO *out = BIO_new(BIO_s_mem());

    if (!out || PEM_write_bio_X509(out, cert) != 1)
        return error_set(err, STATUS_INTERNAL, "encode %s", path);
    return put_file(path, out, 0644, err);
}

/* --- revocation lists */

static enum status read_crl(const char *dir, X509_CRL **out, struct error *err)
{
    SCOPED_TEXT char *path = path_of(dir, "crl.pem");
    SCOPED(BIO_free_all) BIO *in = NULL;
    enum status st = open_file(path, &in, err);

    if (st != STATUS_OK)
        return st;
    *out = PEM_read_bio_X509_CRL(in, NULL, no_password, NULL);
    ERR_clear_error();
    return *out ? STATUS_OK : error_set(err, STATUS_INVALID, "%s holds no readable list", path);
}

static bool add_revoked(X509_CRL *list, const ASN1_INTEGER *serial, const ASN1_TIME *when)
{
    X509_REVOKED *entry = X509_REVOKED_new();

    if (entry && X509_REVOKED_set_serialNumber(entry, (ASN1_INTEGER *)(uintptr_t)serial) == 1 &&
        X509_REVOKED_set_revocationDate(entry, (ASN1_TIME *)(uintptr_t)when) == 1 &&
        X509_CRL_add0_revoked(list, entry) == 1)
        return true;
    X509_REVOKED_free(entry);
    return false;
}

/* Copies the entries of old; true also in *has when the serial is among them. */
static bool copy_revoked(X509_CRL *list, X509_CRL *old, const ASN1_INTEGER *serial, bool *has)
{
    STACK_OF(X509_REVOKED) *entries = old ? X509_CRL_get_REVOKED(old) : NULL;
    int count = sk_X509_REVOKED_num(entries);

    if (count > REVOKED_MAX)
        return false;
    for (int i = 0; i < count; i++) {
        const X509_REVOKED *entry = sk_X509_REVOKED_value(entries, i);
        const ASN1_INTEGER *known = X509_REVOKED_get0_serialNumber(entry);
        *has = *has || (serial && ASN1_INTEGER_cmp(known, serial) == 0);
        if (!add_revoked(list, known, X509_REVOKED_get0_revocationDate(entry)))
            return false;
    }
    return true;
}

static bool fill_crl(X509_CRL *list, X509_CRL *old, X509 *ca, EVP_PKEY *key,
                     const ASN1_INTEGER *serial)
{
    ASN1_TIME *now = X509_gmtime_adj(NULL, -1);
    ASN1_TIME *end = X509_time_adj_ex(NULL, CRL_DAYS, 0, NULL);
    bool has = serial == NULL;
    bool good = now && end && X509_CRL_set_version(list, 1) == 1 &&
                X509_CRL_set_issuer_name(list, X509_get_subject_name(ca)) == 1 &&
                X509_CRL_set1_lastUpdate(list, now) == 1 &&
                X509_CRL_set1_nextUpdate(list, end) == 1 && copy_revoked(list, old, serial, &has) &&
                (has || add_revoked(list, serial, now)) && X509_CRL_sort(list) == 1 &&
                X509_CRL_sign(list, key, EVP_sha256()) > 0;

    ASN1_TIME_free(now);
    ASN1_TIME_free(end);
    return good;
}

enum status ca_file_write_crl(const char *dir, X509 *ca, EVP_PKEY *key, const ASN1_INTEGER *serial,
                              struct error *err)
{
    SCOPED(X509_CRL_free) X509_CRL *old = NULL;
    SCOPED(X509_CRL_free) X509_CRL *list = X509_CRL_new();
    SCOPED(BIO_free_all) BIO *out = BIO_new(BIO_s_mem());
    SCOPED_TEXT char *plain = path_of(dir, "crl.pem");
    SCOPED_TEXT char *folder = path_of(dir, "crl");
    SCOPED_TEXT char *hashed = mem_printf(
        "%s/%08lx.r0", folder, X509_NAME_hash_ex(X509_get_subject_name(ca), NULL, NULL, NULL));
    enum status st = read_crl(dir, &old, err);

    if (st != STATUS_OK && st != STATUS_NOT_FOUND)
        return st;
    if (old && X509_CRL_verify(old, key) != 1)
        return error_set(err, STATUS_INVALID, "%s is not this CA's list", plain);
    if (!list || !out || !fill_crl(list, old, ca, key, serial) ||
        PEM_write_bio_X509_CRL(out, list) != 1) {
        ERR_clear_error();
        return error_set(err, STATUS_INTERNAL, "make %s", plain);
    }
    if ((st = ca_file_dir(folder, err)) || (st = put_file(plain, out, 0644, err)))
        return st;
    return put_file(hashed, out, 0644, err);
}
