/* alone.c - see alone.h. */
#include "worker/alone.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/alone_manifest.h"

#define ENTRIES_MAX 100000

int alone_init(struct alone *alone, const char *root, const char *role, uint32_t rank,
               uint32_t world)
{
    char here[2048];

    *alone = (struct alone){.rank = rank, .world = world};
    if (snprintf(alone->role, sizeof alone->role, "%s", role) >= (int)sizeof alone->role)
        return -ENAMETOOLONG;
    if (root[0] == '/')
        return snprintf(alone->root, sizeof alone->root, "%s", root) < (int)sizeof alone->root
                   ? 0
                   : -ENAMETOOLONG;
    if (!getcwd(here, sizeof here)) /* the program may change it later */
        return -errno;
    return snprintf(alone->root, sizeof alone->root, "%s/%s", here, root) < (int)sizeof alone->root
               ? 0
               : -ENAMETOOLONG;
}

static void step_path(const struct alone *alone, int64_t step, char out[4096])
{
    (void)snprintf(out, 4096, "%s/step-%" PRId64, alone->root, step);
}

static void part_path(const struct alone *alone, int64_t step, const char *end, char out[4096])
{
    (void)snprintf(out, 4096, "%s/step-%" PRId64 "/%s-%" PRIu32 "%s", alone->root, step,
                   alone->role, alone->rank, end);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

static int make_dirs(char *path)
{
    for (char *at = path + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return -errno;
        *at = '/';
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : -errno;
}

static int clear(const struct alone *alone, int64_t step)
{
    char path[4096];

    part_path(alone, step, ".done", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return -errno;
    part_path(alone, step, "", path);
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return -errno;
    return 0;
}

int alone_abort(const struct alone *alone, int64_t step)
{
    char path[4096];
    int problem;

    step_path(alone, step, path);
    alone_manifest_remove(path);
    problem = clear(alone, step);
    (void)rmdir(path); /* the last one out */
    return problem;
}

int alone_save_dir(const struct alone *alone, int64_t step, char *out, size_t cap)
{
    char path[4096];
    int problem;

    step_path(alone, step, path);
    alone_manifest_remove(path);
    problem = clear(alone, step);
    if (problem)
        return problem;
    part_path(alone, step, "", path);
    if (strlen(path) >= cap)
        return -ENAMETOOLONG;
    for (int tries = 0; tries < 8; tries++) { /* another rank may just be aborting */
        problem = make_dirs(path);
        if (problem != -ENOENT)
            break;
    }
    if (problem)
        return problem;
    memcpy(out, path, strlen(path) + 1);
    return 0;
}

static int sync_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    int fd;

    (void)st;
    (void)where;
    if (kind != FTW_F && kind != FTW_DP)
        return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fsync(fd) != 0) {
        (void)close(fd);
        return -1;
    }
    return close(fd);
}

static int write_done(const char *temp, const char *text, size_t len)
{
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int problem = 0;

    if (fd < 0)
        return -errno;
    if (write(fd, text, len) != (ssize_t)len)
        problem = -EIO;
    else if (fsync(fd) != 0)
        problem = -errno;
    (void)close(fd);
    return problem;
}

/* What the .done file says; *out is the caller's to free. */
static int print_done(const struct alone *alone, int64_t step, int64_t samples,
                      const struct alone_part *part, char **out, size_t *len)
{
    FILE *text = open_memstream(out, len);

    if (!text)
        return -errno;
    (void)fprintf(text, "%" PRId64 " %" PRId64 " %" PRIu32 "\n", step, samples, alone->world);
    if (part)
        (void)fprintf(text, "layout %s %" PRIu32 "\n", part->layout_digest, part->files_count);
    for (uint32_t i = 0; part && i < part->files_count; i++)
        (void)fprintf(text, "%s %" PRIu64 " %" PRIu32 " %s\n", part->files[i].name,
                      part->files[i].bytes, part->files[i].crc32c, part->files[i].xxh3);
    if (fclose(text) == 0)
        return 0;
    free(*out);
    return -ENOMEM;
}

static int commit(const struct alone *alone, int64_t step, int64_t samples,
                  const struct alone_part *part)
{
    char path[4096], temp[4096], *text = NULL;
    size_t len = 0;
    int problem;

    part_path(alone, step, "", path);
    if (nftw(path, sync_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return -errno;
    problem = print_done(alone, step, samples, part, &text, &len);
    if (problem)
        return problem;
    part_path(alone, step, ".done.new", temp);
    part_path(alone, step, ".done", path);
    problem = write_done(temp, text, len);
    free(text);
    if (problem)
        return problem;
    if (rename(temp, path) != 0)
        return -errno;
    step_path(alone, step, path);
    return sync_entry(path, NULL, FTW_DP, NULL) == 0 ? 0 : -errno;
}

int alone_commit(const struct alone *alone, int64_t step, int64_t samples)
{
    return commit(alone, step, samples, NULL);
}

int alone_commit_sharded(const struct alone *alone, int64_t step, int64_t samples,
                         const struct alone_part *part)
{
    char path[4096];
    int problem = commit(alone, step, samples, part);

    step_path(alone, step, path);
    problem = problem ? problem : alone_manifest_write(alone, path, step);
    return problem == -EAGAIN ? 0 : problem; /* not the last one: the manifest is another's */
}

static bool read_done(const struct alone *alone, int64_t step, uint32_t rank, int64_t *samples,
                      uint32_t *world)
{
    struct alone other = *alone;
    char path[4096];
    int64_t said = -1;
    FILE *file;
    bool good;

    other.rank = rank;
    part_path(&other, step, ".done", path);
    file = fopen(path, "re");
    if (!file)
        return false;
    good = fscanf(file, "%" SCNd64 " %" SCNd64 " %" SCNu32, &said, samples, world) == 3 &&
           said == step && *world > 0 && *world <= ENTRIES_MAX;
    (void)fclose(file);
    return good;
}

static bool is_complete(const struct alone *alone, int64_t step, int64_t *samples)
{
    uint32_t world = 0, same = 0;
    int64_t ignored;

    char path[4096];
    int problem;

    if (!read_done(alone, step, 0, samples, &world))
        return false;
    for (uint32_t rank = 1; rank < world; rank++)
        if (!read_done(alone, step, rank, &ignored, &same) || same != world)
            return false;
    step_path(alone, step, path);
    problem = alone_manifest_write(alone, path, step); /* the last one may have died before it */
    return problem == 0 || problem == -ENOENT;
}

int alone_newest(const struct alone *alone, struct alone_point *out)
{
    DIR *dir = opendir(alone->root);
    const struct dirent *entry;
    int64_t best = -1;
    int entries = 0;

    if (!dir)
        return 0;
    while ((entry = readdir(dir)) && entries++ < ENTRIES_MAX) {
        int64_t step, samples = 0;
        char again[64];
        if (sscanf(entry->d_name, "step-%" SCNd64, &step) != 1 || step <= best)
            continue;
        (void)snprintf(again, sizeof again, "step-%" PRId64, step);
        if (strcmp(again, entry->d_name) != 0 || !is_complete(alone, step, &samples))
            continue;
        best = step;
        out->samples = samples;
    }
    (void)closedir(dir);
    if (best < 0)
        return 0;
    out->step = best;
    step_path(alone, best, out->dir);
    return 1;
}

bool alone_is_sealed(const struct alone *alone, int64_t step)
{
    char path[4096], manifest[4200];

    step_path(alone, step, path);
    (void)snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    return access(manifest, F_OK) == 0;
}

void alone_disown(const struct alone *alone)
{
    DIR *dir = opendir(alone->root);
    const struct dirent *entry;
    int entries = 0;

    while (dir && (entry = readdir(dir)) && entries++ < ENTRIES_MAX) {
        char path[4096];
        int64_t step;
        if (sscanf(entry->d_name, "step-%" SCNd64, &step) != 1)
            continue;
        step_path(alone, step, path);
        if (!alone_manifest_wants(alone, path, step) ||
            (!alone->over && alone_is_sealed(alone, step)))
            continue;
        part_path(alone, step, ".done", path);
        (void)unlink(path);
    }
    if (dir)
        (void)closedir(dir);
}
