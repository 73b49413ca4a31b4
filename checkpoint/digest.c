/* digest.c - see digest.h. */
#include "checkpoint/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/mem.h"
#include "base/text.h"

#define BLOCK_BYTES ((size_t)1 << 20)

static void xxh3_destroy(XXH3_state_t *state)
{
    (void)XXH3_freeState(state);
}
SCOPED_DESTRUCTOR(XXH3_state_t *, xxh3_destroy)

/* Short reads are repeated; 0 at the end, -1 with errno. */
static ssize_t read_block(int fd, unsigned char *block, uint64_t offset)
{
    size_t got = 0;
    while (got < BLOCK_BYTES) {
        ssize_t n = pread(fd, block + got, BLOCK_BYTES - got, (off_t)(offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

/* Not a byte beyond size: a file can grow faster than it is read. */
static enum status digest_pass(int fd, const char *name, uint64_t size,
                               const struct digest_options *options, struct digest_file *out,
                               struct error *err)
{
    SCOPED(xxh3_destroy) XXH3_state_t *state = XXH3_createState();
    SCOPED(mem_free) void *block = mem_alloc(BLOCK_BYTES);
    XXH128_canonical_t canonical;

    if (!state || XXH3_128bits_reset(state) != XXH_OK)
        return error_set(err, STATUS_EXHAUSTED, "digest %s: no memory", name);
    *out = (struct digest_file){0};
    while (out->bytes <= size) {
        if (options->stop && atomic_load(options->stop))
            return error_set(err, STATUS_CANCELLED, "%s was not read to its end: stopped", name);
        ssize_t got = read_block(fd, block, out->bytes);
        if (got < 0)
            return error_set(err, STATUS_UNAVAILABLE, "read %s: %s", name, strerror(errno));
        if (got == 0)
            break;
        out->crc32c = digest_crc32c(out->crc32c, block, (size_t)got);
        (void)XXH3_128bits_update(state, block, (size_t)got);
        out->bytes += (uint64_t)got;
        if (options->done)
            (void)atomic_fetch_add(options->done, (uint64_t)got);
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    text_to_hex(canonical.digest, sizeof canonical.digest, out->xxh3);
    return STATUS_OK;
}

enum status digest_fd(int fd, const char *name, bool sync, const atomic_bool *stop,
                      struct digest_file *out, struct error *err)
{
    const struct digest_options options = {.sync = sync, .stop = stop};

    return digest_fd_with(fd, name, &options, out, err);
}

enum status digest_fd_with(int fd, const char *name, const struct digest_options *options,
                           struct digest_file *out, struct error *err)
{
    struct digest_file result;
    struct stat st;
    enum status status;

    if (fstat(fd, &st) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "stat %s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(err, STATUS_INVALID, "%s is not a regular file", name);
    if (options->sync && fdatasync(fd) != 0) /* first: what is on disk is then what we read */
        return error_set(err,
                         errno == ENOSPC || errno == EDQUOT ? STATUS_EXHAUSTED : STATUS_UNAVAILABLE,
                         "sync %s: %s", name, strerror(errno));
    status = digest_pass(fd, name, (uint64_t)st.st_size, options, &result, err);
    if (status != STATUS_OK)
        return status;
    if (result.bytes != (uint64_t)st.st_size)
        return error_set(err, STATUS_ABORTED, "%s changed while it was read", name);
    *out = result;
    return STATUS_OK;
}

enum status digest_file(const char *path, bool sync, struct digest_file *out, struct error *err)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    enum status status;

    if (fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE,
                         "open %s: %s", path, strerror(errno));
    status = digest_fd(fd, path, sync, NULL, out, err);
    (void)close(fd);
    return status;
}

void digest_sha256(const void *bytes, size_t len, char out[65])
{
    unsigned char hash[SHA256_DIGEST_LENGTH];

    (void)SHA256(bytes, len, hash);
    text_to_hex(hash, sizeof hash, out);
}
