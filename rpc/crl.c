#include "rpc/crl.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "rpc/openssl.h"
#include <dirent.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#define FILES_MAX      256
#define FILE_BYTES_MAX (16 << 20)

struct rpc_crl {
    char *dir, *ca_path;
    uint64_t stamp; /* of names, sizes and times as last read */
    struct map *serials;
};

static bool is_crl_name(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && dot[1] == 'r' && dot[2] >= '0' && dot[2] <= '9';
}

static void stamp_add(uint64_t *stamp, const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        *stamp = (*stamp ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
}

/* Order of the directory does not matter: the sum over its files does. */
static uint64_t dir_stamp(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    struct stat st;
    uint64_t sum = 1;

    while (dir && (entry = readdir(dir))) {
        uint64_t stamp = 0xcbf29ce484222325u;
        if (!is_crl_name(entry->d_name) || fstatat(dirfd(dir), entry->d_name, &st, 0) != 0)
            continue;
        stamp_add(&stamp, entry->d_name, strlen(entry->d_name));
        stamp_add(&stamp, &st.st_ino, sizeof st.st_ino);
        stamp_add(&stamp, &st.st_size, sizeof st.st_size);
        stamp_add(&stamp, &st.st_mtim.tv_sec, sizeof st.st_mtim.tv_sec);
        stamp_add(&stamp, &st.st_mtim.tv_nsec, sizeof st.st_mtim.tv_nsec);
        sum += stamp;
    }
    if (dir)
        closedir(dir);
    return sum;
}

static void serial_add(struct map *serials, const ASN1_INTEGER *serial)
{
    BIGNUM *number = ASN1_INTEGER_to_BN(serial, NULL);
    char *hex = number ? BN_bn2hex(number) : NULL;

    if (hex)
        map_put_text(serials, hex, serials);
    OPENSSL_free(hex);
    BN_free(number);
}

static bool file_read(const char *path, X509 *ca, struct map *serials)
{
    struct stat st;

    if (stat(path, &st) != 0 || st.st_size > FILE_BYTES_MAX)
        return false;
    SCOPED(BIO_free_all) BIO *in = BIO_new_file(path, "r");
    SCOPED(X509_CRL_free) X509_CRL *list = in ? PEM_read_bio_X509_CRL(in, NULL, NULL, NULL) : NULL;
    if (!list || X509_CRL_verify(list, X509_get0_pubkey(ca)) != 1)
        return false;
    STACK_OF(X509_REVOKED) *revoked = X509_CRL_get_REVOKED(list);
    for (int i = 0; i < sk_X509_REVOKED_num(revoked); i++)
        serial_add(serials, X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(revoked, i)));
    return true;
}

static bool dir_read(const struct rpc_crl *crl, struct map *serials)
{
    SCOPED(BIO_free_all) BIO *in = BIO_new_file(crl->ca_path, "r");
    SCOPED(X509_free) X509 *ca = in ? PEM_read_bio_X509(in, NULL, NULL, NULL) : NULL;
    DIR *dir = ca ? opendir(crl->dir) : NULL;
    struct dirent *entry;
    bool good = dir != NULL;

    for (int files = 0; dir && (entry = readdir(dir)) && files < FILES_MAX;) {
        if (!is_crl_name(entry->d_name))
            continue;
        SCOPED_TEXT char *path = mem_printf("%s/%s", crl->dir, entry->d_name);
        if (!file_read(path, ca, serials)) {
            log_warn("rpc.crl", log_str("file", path), log_str("err", "no list of our CA"));
            good = false;
        }
        files++;
    }
    if (dir)
        closedir(dir);
    ERR_clear_error();
    return good;
}

bool rpc_crl_refresh(struct rpc_crl *crl)
{
    uint64_t stamp = dir_stamp(crl->dir);
    struct map *serials;

    if (stamp == crl->stamp)
        return false;
    crl->stamp = stamp;
    serials = map_create();
    if (!dir_read(crl, serials)) { /* half a set would let somebody in */
        map_destroy(serials);
        return false;
    }
    map_destroy(crl->serials);
    crl->serials = serials;
    return true;
}

struct rpc_crl *rpc_crl_create(const char *dir, const char *ca_path)
{
    struct rpc_crl *crl = NEW(struct rpc_crl);

    crl->dir = mem_strdup(dir);
    crl->ca_path = mem_strdup(ca_path);
    crl->serials = map_create();
    rpc_crl_refresh(crl);
    return crl;
}

void rpc_crl_destroy(struct rpc_crl *crl)
{
    if (!crl)
        return;
    map_destroy(crl->serials);
    mem_free(crl->dir);
    mem_free(crl->ca_path);
    mem_free(crl);
}

bool rpc_crl_has(const struct rpc_crl *crl, const char *serial_hex)
{
    return crl && map_get_text(crl->serials, serial_hex) != NULL;
}
