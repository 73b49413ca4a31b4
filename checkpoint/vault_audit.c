/* vault_audit.c - see vault_audit.h. */
#include "checkpoint/vault_audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/text.h"
#include "checkpoint/block_sum.h"
#include "checkpoint/block_table.h"
#include "checkpoint/digest.h"
#include "checkpoint/slot.h"
#include "checkpoint/vault.h"
#include "checkpoint/vault_manifest.h"
#include "checkpoint/vault_tree.h"

#define READ_BYTES ((size_t)1 << 20)

struct vault_audit {
    int dir;
    Pb__Checkpoint *manifest;
    struct vault_audit_part *parts;
    size_t parts_count, part, file; /* part, file: where it goes on */
    size_t *index;                  /* of each part in the manifest */
    int fd;                         /* of the file that is being read; -1: none */
    uint64_t at, bytes;
    struct block_sum sum;
    uint32_t *crcs; /* of the file's blocks */
    EVP_MD_CTX *sha;
    XXH3_state_t *xxh3;
    struct text lines;
    void *buffer;
};

static void list_parts(struct vault_audit *audit, const char *node)
{
    const Pb__Checkpoint *manifest = audit->manifest;

    audit->parts = mem_array(manifest->n_parts + 1, sizeof *audit->parts);
    audit->index = mem_array(manifest->n_parts + 1, sizeof *audit->index);
    for (size_t i = 0; i < manifest->n_parts; i++) {
        if (node && strcmp(manifest->parts[i]->node, node) != 0)
            continue;
        audit->parts[audit->parts_count].role = manifest->parts[i]->role;
        audit->parts[audit->parts_count].rank = manifest->parts[i]->rank;
        audit->index[audit->parts_count++] = i;
    }
}

enum status vault_audit_begin(const char *vault, const char *path, const char *digest,
                              const char *node, struct vault_audit **out, struct error *err)
{
    SCOPED(vault_audit_destroy) struct vault_audit *audit = NEW(struct vault_audit);
    enum status status;

    audit->dir = audit->fd = -1;
    text_init(&audit->lines, 0);
    audit->sha = EVP_MD_CTX_new();
    audit->xxh3 = XXH3_createState();
    audit->buffer = mem_alloc(READ_BYTES);
    if (!audit->sha || !audit->xxh3)
        return error_set(err, STATUS_EXHAUSTED, "no memory for digests");
    status = vault_tree_open(vault, path, false, &audit->dir, err);
    if (status == STATUS_OK)
        status = vault_manifest_read(audit->dir, digest, &audit->manifest, err);
    if (status != STATUS_OK) {
        (void)error_wrap(err, "verify %s", path);
        return status;
    }
    list_parts(audit, node);
    *out = TAKE(audit);
    return STATUS_OK;
}

void vault_audit_destroy(struct vault_audit *audit)
{
    if (!audit)
        return;
    vault_tree_close(audit->dir);
    vault_tree_close(audit->fd);
    if (audit->manifest)
        pb__checkpoint__free_unpacked(audit->manifest, NULL);
    mem_free(audit->parts);
    mem_free(audit->index);
    mem_free(audit->crcs);
    EVP_MD_CTX_free(audit->sha);
    XXH3_freeState(audit->xxh3);
    text_fini(&audit->lines);
    mem_free(audit->buffer);
    mem_free(audit);
}

static enum status file_begin(struct vault_audit *audit, const Pb__CheckpointFile *want,
                              struct error *err)
{
    struct stat st;
    enum status status = vault_tree_file(audit->dir, want->path, &audit->fd, err);

    if (status == STATUS_NOT_FOUND || status == STATUS_INVALID)
        return error_set(err, STATUS_DATA_LOSS, "%s is missing or not a file", want->path);
    if (status != STATUS_OK)
        return status;
    if (fstat(audit->fd, &st) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "stat %s: %s", want->path, strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != want->bytes)
        return error_set(err, STATUS_DATA_LOSS, "%s has %" PRId64 " bytes, not %" PRIu64,
                         want->path, (int64_t)st.st_size, want->bytes);
    audit->at = 0;
    audit->sum = (struct block_sum){0};
    mem_free(audit->crcs);
    audit->crcs = mem_array((size_t)block_table_count(want->bytes) + 1, sizeof *audit->crcs);
    if (EVP_DigestInit_ex(audit->sha, EVP_sha256(), NULL) != 1 ||
        XXH3_128bits_reset(audit->xxh3) != XXH_OK)
        return error_set(err, STATUS_INTERNAL, "begin a digest");
    return STATUS_OK;
}

static enum status file_read(struct vault_audit *audit, const Pb__CheckpointFile *want,
                             struct error *err)
{
    uint64_t left = want->bytes - audit->at;
    ssize_t got = pread(audit->fd, audit->buffer, left < READ_BYTES ? (size_t)left : READ_BYTES,
                        (off_t)audit->at);

    if (got < 0 && errno == EINTR)
        return STATUS_OK;
    if (got < 0)
        return error_set(err, errno == EIO ? STATUS_DATA_LOSS : STATUS_UNAVAILABLE,
                         "read %s at %" PRIu64 ": %s", want->path, audit->at, strerror(errno));
    if (got == 0)
        return error_set(err, STATUS_DATA_LOSS, "%s ends at %" PRIu64, want->path, audit->at);
    block_sum_add(&audit->sum, audit->buffer, (size_t)got, audit->crcs);
    (void)XXH3_128bits_update(audit->xxh3, audit->buffer, (size_t)got);
    if (EVP_DigestUpdate(audit->sha, audit->buffer, (size_t)got) != 1)
        return error_set(err, STATUS_INTERNAL, "digest %s", want->path);
    (void)posix_fadvise(audit->fd, (off_t)audit->at, got, POSIX_FADV_DONTNEED);
    audit->at += (uint64_t)got;
    audit->bytes += (uint64_t)got;
    return STATUS_OK;
}

/* The block table beside the shards, when it is what the manifest says. NULL: not known. */
static struct block_table *find_blocks(const struct vault_audit *audit,
                                       const Pb__CheckpointPart *part)
{
    struct block_table *table = NULL;
    struct text bytes;

    text_init(&bytes, BLOCK_TABLE_BYTES_MAX);
    for (size_t i = 0; i < part->n_files && !table; i++) {
        const Pb__CheckpointFile *file = part->files[i];
        const char *name = strrchr(file->path, '/');
        if (name && strcmp(name + 1, SLOT_BLOCKS_NAME) == 0 &&
            vault_tree_read(audit->dir, file->path, &bytes, NULL) == STATUS_OK &&
            bytes.len == file->bytes &&
            digest_crc32c(0, text_get(&bytes), bytes.len) == file->crc32c)
            (void)!block_table_parse(text_get(&bytes), bytes.len, &table, NULL);
    }
    text_fini(&bytes);
    return table;
}

/* "shard-00002-model-00001-of-00003.safetensors": 0, its place in the table. */
static bool shard_index(const char *path, uint32_t *index)
{
    const char *name = strrchr(path, '/');
    unsigned rank, number, count;

    if (!name || sscanf(name + 1, "shard-%5u-model-%5u-of-%5u.", &rank, &number, &count) != 3 ||
        number == 0)
        return false;
    *index = number - 1;
    return true;
}

/* The first of its blocks that is not what it was; UINT64_MAX: not known. */
static uint64_t damaged_block(const struct vault_audit *audit, const Pb__CheckpointFile *want)
{
    const Pb__CheckpointPart *part = audit->manifest->parts[audit->index[audit->part]];
    SCOPED(block_table_destroy) struct block_table *table = find_blocks(audit, part);
    uint32_t index;

    if (!table || !shard_index(want->path, &index) || index >= table->files_count ||
        table->files[index].bytes != want->bytes)
        return UINT64_MAX;
    for (uint32_t i = 0; i < table->files[index].count; i++)
        if (table->files[index].crcs[i] != audit->crcs[i])
            return i;
    return UINT64_MAX;
}

static enum status mismatch(const struct vault_audit *audit, const Pb__CheckpointFile *want,
                            struct error *err)
{
    uint64_t block = damaged_block(audit, want);

    if (block == UINT64_MAX)
        return error_set(err, STATUS_DATA_LOSS, "%s does not match its digest", want->path);
    return error_set(err, STATUS_DATA_LOSS, "%s, block %" PRIu64 ": does not match its digest",
                     want->path, block);
}

static enum status file_end(struct vault_audit *audit, const Pb__CheckpointFile *want,
                            struct error *err)
{
    XXH128_canonical_t canonical;
    unsigned char sha[32];
    char xxh3[33], hex[65];

    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(audit->xxh3));
    for (size_t i = 0; i < sizeof canonical.digest; i++)
        (void)snprintf(xxh3 + 2 * i, 3, "%02x", canonical.digest[i]);
    block_sum_end(&audit->sum, audit->crcs);
    if (audit->sum.crc32c != want->crc32c || strcmp(xxh3, want->xxh3) != 0)
        return mismatch(audit, want, err);
    if (EVP_DigestFinal_ex(audit->sha, sha, NULL) != 1)
        return error_set(err, STATUS_INTERNAL, "digest %s", want->path);
    for (size_t i = 0; i < sizeof sha; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", sha[i]);
    text_addf(&audit->lines, "%s  %s\n", hex, want->path);
    vault_tree_close(audit->fd);
    audit->fd = -1;
    return STATUS_OK;
}

static void part_end(struct vault_audit *audit)
{
    digest_sha256(text_get(&audit->lines), audit->lines.len, audit->parts[audit->part].sha256);
    text_fini(&audit->lines);
    text_init(&audit->lines, 0);
    audit->part++;
    audit->file = 0;
}

enum status vault_audit_step(struct vault_audit *audit, uint64_t bytes_max, bool *over,
                             struct error *err)
{
    const uint64_t until = audit->bytes + (bytes_max ? bytes_max : 1);
    enum status status = STATUS_OK;

    while (status == STATUS_OK && audit->part < audit->parts_count && audit->bytes < until) {
        const Pb__CheckpointPart *part = audit->manifest->parts[audit->index[audit->part]];
        if (audit->file == part->n_files) {
            part_end(audit);
            continue;
        }
        const Pb__CheckpointFile *want = part->files[audit->file];
        if (audit->fd < 0)
            status = file_begin(audit, want, err);
        else if (audit->at < want->bytes)
            status = file_read(audit, want, err);
        else if ((status = file_end(audit, want, err)) == STATUS_OK)
            audit->file++;
    }
    *over = status == STATUS_OK && audit->part == audit->parts_count;
    return status;
}

size_t vault_audit_parts(const struct vault_audit *audit, const struct vault_audit_part **out)
{
    *out = audit->parts;
    return audit->parts_count;
}

uint64_t vault_audit_bytes(const struct vault_audit *audit)
{
    return audit->bytes;
}
