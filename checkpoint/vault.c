/* vault.c - see vault.h. */
#include "checkpoint/vault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/digest.h"
#include "checkpoint/vault_manifest.h"
#include "checkpoint/vault_tree.h"

#define TOMBSTONE_NAME "deleted"

void vault_checkpoint_path(const Pb__WorkerKey *key, int64_t step, char *out, size_t cap)
{
    char incarnation[16] = "";

    if (key->incarnation > 1)
        (void)snprintf(incarnation, sizeof(incarnation), ".%" PRIu32, key->incarnation);
    (void)snprintf(out, cap, "job-%" PRId64 "/step-%" PRId64 ".%" PRIu32 "%s", key->job, step,
                   key->attempt, incarnation);
}

/* "<role>-<rank>", or STATUS_INVALID. */
static enum status part_name(const char *role, uint32_t rank, char out[256], struct error *err)
{
    int len = snprintf(out, 256, "%s-%" PRIu32, role, rank);

    if (len < 0 || len >= 256 || role[0] == '.' || !vault_tree_name_ok(out))
        return error_set(err, STATUS_INVALID, "'%.80s' is no name of a role", role);
    return STATUS_OK;
}

static enum status sync_dir(int fd, const char *name, struct error *err)
{
    if (fsync(fd) != 0)
        return error_set(err, vault_tree_status(errno), "sync %s: %s", name, strerror(errno));
    return STATUS_OK;
}

static bool is_sealed(int dir)
{
    return faccessat(dir, VAULT_MANIFEST_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* An earlier, torn save of this rank may have left files: they must not mix with the new ones. */
static enum status part_make(int dir, const char *name, int64_t uid, int64_t gid, struct error *err)
{
    enum status status = vault_tree_remove(dir, name, err);

    if (status != STATUS_OK)
        return status;
    if (mkdirat(dir, name, 0750) != 0)
        return error_set(err, vault_tree_status(errno), "make %s: %s", name, strerror(errno));
    if ((uid >= 0 || gid >= 0) &&
        fchownat(dir, name, uid < 0 ? (uid_t)-1 : (uid_t)uid, gid < 0 ? (gid_t)-1 : (gid_t)gid,
                 AT_SYMLINK_NOFOLLOW) != 0)
        return error_set(err, vault_tree_status(errno), "give %s to uid %" PRId64 ": %s", name, uid,
                         strerror(errno));
    return sync_dir(dir, name, err);
}

enum status vault_part_create(const char *vault, const char *path, const char *role, uint32_t rank,
                              int64_t uid, int64_t gid, char *out, size_t cap, struct error *err)
{
    SCOPED_FD int dir = -1;
    char name[256];
    enum status status = part_name(role, rank, name, err);

    if (status != STATUS_OK)
        return status;
    if (strlen(vault) + strlen(path) + strlen(name) + 3 > cap)
        return error_set(err, STATUS_OUT_OF_RANGE, "path of a part in %.80s is too long", vault);
    status = vault_tree_open(vault, path, true, &dir, err);
    if (status != STATUS_OK)
        return status;
    if (is_sealed(dir))
        return error_set(err, STATUS_EXISTS, "%s is sealed already", path);
    status = part_make(dir, name, uid, gid, err);
    if (status != STATUS_OK) {
        (void)error_wrap(err, "%s/%s", vault, path);
        return status;
    }
    (void)snprintf(out, cap, "%s/%s/%s", vault, path, name);
    return STATUS_OK;
}

/* --- digest of a part */

struct part_digest {
    Pb__CheckpointPart *part;
    const char *name;
    size_t cap;
    const atomic_bool *stop;
};

static enum status part_digest_file(void *arg, int fd, const char *path, struct error *err)
{
    struct part_digest *digest = arg;
    Pb__CheckpointPart *part = digest->part;
    struct digest_file found;
    Pb__CheckpointFile *file;
    enum status status = digest_fd(fd, path, true, digest->stop, &found, err);

    if (status != STATUS_OK)
        return status;
    if (part->n_files == digest->cap) {
        digest->cap = digest->cap ? digest->cap * 2 : 16;
        part->files = mem_resize(part->files, digest->cap, sizeof(Pb__CheckpointFile *));
    }
    file = NEW(Pb__CheckpointFile);
    pb__checkpoint_file__init(file);
    file->path = mem_printf("%s/%s", digest->name, path);
    file->has_bytes = file->has_crc32c = true;
    file->bytes = found.bytes;
    file->crc32c = found.crc32c;
    file->xxh3 = mem_strdup(found.xxh3);
    part->files[part->n_files++] = file;
    return STATUS_OK;
}

static int file_order(const void *a, const void *b)
{
    return strcmp((*(Pb__CheckpointFile *const *)a)->path, (*(Pb__CheckpointFile *const *)b)->path);
}

static void part_destroy(Pb__CheckpointPart *part)
{
    if (part)
        pb__checkpoint_part__free_unpacked(part, NULL);
}
SCOPED_DESTRUCTOR(Pb__CheckpointPart *, part_destroy)

enum status vault_part_digest(const char *vault, const char *path, const char *role, uint32_t rank,
                              const atomic_bool *stop, Pb__CheckpointPart **out, struct error *err)
{
    SCOPED(part_destroy) Pb__CheckpointPart *part = NEW(Pb__CheckpointPart);
    SCOPED_TEXT char *below = NULL;
    SCOPED_FD int dir = -1;
    char name[256];
    struct part_digest digest = {.part = part, .name = name, .stop = stop};
    enum status status;

    pb__checkpoint_part__init(part);
    status = part_name(role, rank, name, err);
    if (status != STATUS_OK)
        return status;
    below = mem_printf("%s/%s", path, name);
    status = vault_tree_open(vault, below, false, &dir, err);
    if (status == STATUS_OK)
        status = vault_tree_walk(dir, true, part_digest_file, &digest, err);
    if (status != STATUS_OK) {
        (void)error_wrap(err, "digest %s", below);
        return status;
    }
    if (part->n_files)
        qsort(part->files, part->n_files, sizeof *part->files, file_order);
    part->role = mem_strdup(role);
    part->has_rank = true;
    part->rank = rank;
    *out = TAKE(part);
    return STATUS_OK;
}

/* --- seal */

static void text_destroy(struct text *text)
{
    text_fini(text);
}
#define SCOPED_BUFFER __attribute__((cleanup(text_destroy)))

/* A manifest is there: is it this one? */
static enum status compare_sealed(int dir, const void *manifest, size_t len, struct error *err)
{
    SCOPED_BUFFER struct text there;
    enum status status;

    text_init(&there, VAULT_MANIFEST_MAX);
    status = vault_tree_read(dir, VAULT_MANIFEST_NAME, &there, err);
    if (status != STATUS_OK)
        return status;
    if (there.len != len || memcmp(text_get(&there), manifest, len) != 0)
        return error_set(err, STATUS_ABORTED, "another manifest is there already");
    return sync_dir(dir, VAULT_MANIFEST_NAME, err); /* the one who renamed may have died before */
}

static enum status write_all(int fd, const char *bytes, size_t len, struct error *err)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(err, vault_tree_status(errno), "write manifest: %s", strerror(errno));
        bytes += n;
        len -= (size_t)n;
    }
    if (fsync(fd) != 0)
        return error_set(err, vault_tree_status(errno), "sync manifest: %s", strerror(errno));
    return STATUS_OK;
}

/* Gives temp its final name unless another one is there: EEXIST. */
static int publish(int dir, const char *temp)
{
    if (renameat2(dir, temp, dir, VAULT_MANIFEST_NAME, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (linkat(dir, temp, dir, VAULT_MANIFEST_NAME, 0) != 0) /* file systems without the flag */
        return -1;
    (void)unlinkat(dir, temp, 0);
    return 0;
}

static enum status seal_new(int dir, const void *manifest, size_t len, struct error *err)
{
    SCOPED_FD int fd = -1;
    uint64_t chance = 0;
    char temp[64];
    enum status status;

    (void)getrandom(&chance, sizeof chance, 0);
    (void)snprintf(temp, sizeof temp, ".manifest.%016" PRIx64, chance);
    fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_set(err, vault_tree_status(errno), "make manifest: %s", strerror(errno));
    status = write_all(fd, manifest, len, err);
    if (status == STATUS_OK && publish(dir, temp) != 0)
        status = errno == EEXIST ? compare_sealed(dir, manifest, len, err)
                                 : error_set(err, vault_tree_status(errno), "rename manifest: %s",
                                             strerror(errno));
    (void)unlinkat(dir, temp, 0); /* gone already after a success */
    return status == STATUS_OK ? sync_dir(dir, VAULT_MANIFEST_NAME, err) : status;
}

enum status vault_seal(const char *vault, const char *path, const void *manifest, size_t len,
                       struct error *err)
{
    SCOPED_FD int dir = -1;
    enum status status;

    if (len == 0 || len > VAULT_MANIFEST_MAX)
        return error_set(err, STATUS_INVALID, "manifest of %zu bytes", len);
    status = vault_tree_open(vault, path, false, &dir, err);
    if (status != STATUS_OK)
        return status;
    status = is_sealed(dir) ? compare_sealed(dir, manifest, len, err)
                            : seal_new(dir, manifest, len, err);
    if (status != STATUS_OK)
        (void)error_wrap(err, "seal %s", path);
    return status;
}

/* --- verify */

static enum status verify_file(int dir, const Pb__CheckpointFile *want, bool deep,
                               struct error *err)
{
    SCOPED_FD int fd = -1;
    struct digest_file found;
    struct stat st;
    enum status status = vault_tree_file(dir, want->path, &fd, err);

    if (status == STATUS_NOT_FOUND || status == STATUS_INVALID)
        return error_set(err, STATUS_DATA_LOSS, "%s is missing or not a file", want->path);
    if (status != STATUS_OK)
        return status;
    if (fstat(fd, &st) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "stat %s: %s", want->path, strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != want->bytes)
        return error_set(err, STATUS_DATA_LOSS, "%s has %" PRId64 " bytes, not %" PRIu64,
                         want->path, (int64_t)st.st_size, want->bytes);
    if (!deep)
        return STATUS_OK;
    status = digest_fd(fd, want->path, false, NULL, &found, err);
    if (status != STATUS_OK)
        return status;
    if (found.crc32c != want->crc32c || strcmp(found.xxh3, want->xxh3) != 0)
        return error_set(err, STATUS_DATA_LOSS, "%s does not match its digest", want->path);
    return STATUS_OK;
}

static void manifest_destroy(Pb__Checkpoint *checkpoint)
{
    if (checkpoint)
        pb__checkpoint__free_unpacked(checkpoint, NULL);
}
SCOPED_DESTRUCTOR(Pb__Checkpoint *, manifest_destroy)

/* How much of each file is read. */
enum depth { SIZES, RESUME, EVERYTHING };

static enum status verify_dir(int dir, const char *digest, enum depth depth, struct error *err)
{
    SCOPED(manifest_destroy) Pb__Checkpoint *manifest = NULL;
    enum status status = vault_manifest_read(dir, digest, &manifest, err);
    bool sharded = status == STATUS_OK && manifest->format == PB__CHECKPOINT__FORMAT__SHARDED;
    bool deep = depth == EVERYTHING || (depth == RESUME && !sharded);

    for (size_t i = 0; status == STATUS_OK && i < manifest->n_parts; i++)
        for (size_t k = 0; status == STATUS_OK && k < manifest->parts[i]->n_files; k++)
            status = verify_file(dir, manifest->parts[i]->files[k], deep, err);
    return status;
}

static enum status verify(const char *vault, const char *path, const char *digest, enum depth depth,
                          struct error *err)
{
    SCOPED_FD int dir = -1;
    enum status status = vault_tree_open(vault, path, false, &dir, err);

    if (status == STATUS_OK)
        status = verify_dir(dir, digest, depth, err);
    if (status != STATUS_OK)
        (void)error_wrap(err, "verify %s", path);
    return status;
}

enum status vault_verify(const char *vault, const char *path, const char *digest, bool deep,
                         struct error *err)
{
    return verify(vault, path, digest, deep ? EVERYTHING : SIZES, err);
}

/* Does the vault hold anything? Not while its disk is away: the mount point is empty then. */
static bool is_there(const char *vault)
{
    DIR *dir = opendir(vault);
    const struct dirent *entry;
    bool found = false;

    while (dir && !found && (entry = readdir(dir)))
        found = entry->d_name[0] != '.' && strcmp(entry->d_name, "lost+found") != 0;
    if (dir)
        (void)closedir(dir);
    return found;
}

enum status vault_verify_resume(const char *vault, const char *path, const char *digest,
                                struct error *err)
{
    enum status st = verify(vault, path, digest, RESUME, err);

    if (st == STATUS_OK || is_there(vault))
        return st;
    return error_set(err, STATUS_UNAVAILABLE,
                     "the vault %.200s is empty or not there: is it mounted?", vault);
}

/* --- delete */

static enum status delete_below(int parent, const char *name, struct error *err)
{
    SCOPED_FD int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    enum status status;

    if (dir < 0)
        return errno == ENOENT
                   ? STATUS_OK
                   : error_set(err, vault_tree_status(errno), "open %s: %s", name, strerror(errno));
    if (renameat(dir, VAULT_MANIFEST_NAME, dir, TOMBSTONE_NAME) != 0 && errno != ENOENT)
        return error_set(err, vault_tree_status(errno), "unseal %s: %s", name, strerror(errno));
    status = sync_dir(dir, name, err); /* from here on nobody takes it for a checkpoint */
    if (status != STATUS_OK)
        return status;
    status = vault_tree_remove(parent, name, err);
    return status == STATUS_OK ? sync_dir(parent, name, err) : status;
}

enum status vault_delete(const char *vault, const char *path, struct error *err)
{
    SCOPED_FD int parent = -1;
    SCOPED_TEXT char *above = NULL;
    const char *slash = strrchr(path, '/');
    enum status status;

    if (!vault_tree_path_ok(path))
        return error_set(err, STATUS_INVALID, "'%.80s' is no path inside a vault", path);
    above = slash ? mem_printf("%.*s", (int)(slash - path), path) : mem_strdup("");
    status = vault_tree_open(vault, above, false, &parent, err);
    if (status == STATUS_NOT_FOUND && access(vault, F_OK) == 0)
        return STATUS_OK;
    if (status == STATUS_OK)
        status = delete_below(parent, slash ? slash + 1 : path, err);
    if (status != STATUS_OK)
        (void)error_wrap(err, "delete %s", path);
    return status;
}
