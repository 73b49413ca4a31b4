/* alone_manifest.c - see alone_manifest.h. */
#include "worker/alone_manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WORLD_MAX 100000
#define DAMAGED   "manifest.damaged.json"

/* The head of a .done file, and the file behind it. */
struct done {
    FILE *file;
    int64_t samples;
    uint32_t world, files_count;
    char digest[33];
};

static void close_done(struct done *done)
{
    if (done->file)
        (void)fclose(done->file);
    done->file = NULL;
}

static int open_done(const struct alone *alone, const char *dir, int64_t step, uint32_t rank,
                     struct done *out)
{
    char path[4096];
    int64_t said;

    *out = (struct done){0};
    if (snprintf(path, sizeof path, "%s/%s-%" PRIu32 ".done", dir, alone->role, rank) >=
        (int)sizeof path)
        return -ENAMETOOLONG;
    out->file = fopen(path, "re");
    if (!out->file)
        return errno == ENOENT ? -EAGAIN : -errno;
    if (fscanf(out->file, "%" SCNd64 " %" SCNd64 " %" SCNu32, &said, &out->samples, &out->world) !=
            3 ||
        said != step || out->world == 0 || out->world > WORLD_MAX) {
        close_done(out);
        return -EAGAIN;
    }
    if (fscanf(out->file, " layout %32[0-9a-f] %" SCNu32, out->digest, &out->files_count) == 2 &&
        out->files_count <= ALONE_FILES_MAX)
        return 0;
    close_done(out);
    return -ENOENT;
}

static int print_files(const struct alone *alone, struct done *done, uint32_t rank, FILE *out)
{
    for (uint32_t i = 0; i < done->files_count; i++) {
        struct alone_file file;
        if (fscanf(done->file, " %95[A-Za-z0-9._-] %" SCNu64 " %" SCNu32 " %32[0-9a-f]", file.name,
                   &file.bytes, &file.crc32c, file.xxh3) != 4)
            return -EIO;
        (void)fprintf(out,
                      "%s\n      {\"path\": \"%s-%" PRIu32 "/%s\", \"bytes\": %" PRIu64
                      ", \"crc32c\": %" PRIu32 ", \"xxh3\": \"%s\"}",
                      i == 0 ? "" : ",", alone->role, rank, file.name, file.bytes, file.crc32c,
                      file.xxh3);
    }
    return 0;
}

static int print_part(const struct alone *alone, struct done *done, uint32_t rank, FILE *out)
{
    int problem;

    (void)fprintf(out,
                  "%s\n    {\"role\": \"%s\", \"rank\": %" PRIu32
                  ", \"node\": \"\", \"samples\": %" PRId64
                  ", \"layout_digest\": \"%s\", \"files\": [",
                  rank == 0 ? "" : ",", alone->role, rank, done->samples, done->digest);
    problem = print_files(alone, done, rank, out);
    (void)fprintf(out, "]}");
    return problem;
}

static int print_parts(const struct alone *alone, const char *dir, int64_t step,
                       const struct done *first, FILE *out)
{
    bool differ = false;

    for (uint32_t rank = 0; rank < first->world; rank++) {
        struct done done;
        int problem = open_done(alone, dir, step, rank, &done);
        if (problem)
            return problem;
        if (done.world != first->world || done.samples != first->samples)
            problem = -EAGAIN; /* of an earlier run: its part comes yet */
        else if (strcmp(done.digest, first->digest) != 0)
            differ = true;
        else
            problem = print_part(alone, &done, rank, out);
        close_done(&done);
        if (problem)
            return problem;
    }
    return differ ? -EINVAL : 0;
}

static int print_manifest(const struct alone *alone, const char *dir, int64_t step, FILE *out)
{
    struct timespec now;
    struct done first;
    int problem = open_done(alone, dir, step, 0, &first);

    if (problem)
        return problem;
    close_done(&first);
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)fprintf(out,
                  "{\n  \"format\": \"rondo-checkpoint-2\",\n  \"layout\": "
                  "\"%s-0/layout.json\",\n  \"layout_digest\": \"%s\",\n",
                  alone->role, first.digest);
    (void)fprintf(out,
                  "  \"id\": 0,\n  \"job\": 0,\n  \"attempt\": 0,\n  \"step\": %" PRId64
                  ",\n  \"samples\": %" PRId64 ",\n  \"parent\": 0,\n  \"world\": %" PRIu32
                  ",\n  \"created_us\": %" PRId64 ",\n  \"parts\": [",
                  step, first.samples, first.world,
                  (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    problem = print_parts(alone, dir, step, &first, out);
    (void)fprintf(out, "]\n}\n");
    return problem;
}

static int sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int problem = fd >= 0 && fsync(fd) == 0 ? 0 : -errno;

    if (fd >= 0)
        (void)close(fd);
    return problem;
}

static int print_to(const struct alone *alone, const char *dir, int64_t step, const char *temp)
{
    FILE *out = fopen(temp, "we");
    int problem;

    if (!out)
        return -errno;
    problem = print_manifest(alone, dir, step, out);
    if (!problem && (fflush(out) != 0 || fsync(fileno(out)) != 0))
        problem = -errno;
    if (fclose(out) != 0 && !problem)
        problem = -errno;
    return problem;
}

bool alone_manifest_wants(const struct alone *alone, const char *dir, int64_t step)
{
    struct done done;
    int problem = open_done(alone, dir, step, alone->rank, &done);

    close_done(&done);
    return problem == 0;
}

int alone_manifest_write(const struct alone *alone, const char *dir, int64_t step)
{
    char path[4096], temp[4096];
    struct done first;
    int problem = open_done(alone, dir, step, 0, &first);

    if (problem)
        return problem;
    close_done(&first);
    if (snprintf(path, sizeof path, "%s/" DAMAGED, dir) < (int)sizeof path &&
        access(path, F_OK) == 0)
        return -EAGAIN;
    if (snprintf(path, sizeof path, "%s/manifest.json", dir) >= (int)sizeof path ||
        snprintf(temp, sizeof temp, "%s/manifest.%" PRIu32 ".%ld.new", dir, alone->rank,
                 (long)getpid()) >= (int)sizeof temp)
        return -ENAMETOOLONG;
    if (access(path, F_OK) == 0)
        return 0;
    problem = print_to(alone, dir, step, temp);
    if (!problem && link(temp, path) != 0 && errno != EEXIST)
        problem = -errno;
    (void)unlink(temp);
    return problem ? problem : sync_dir(dir);
}

void alone_manifest_set_aside(const char *dir)
{
    char path[4096], aside[4096];

    if (snprintf(path, sizeof path, "%s/manifest.json", dir) < (int)sizeof path &&
        snprintf(aside, sizeof aside, "%s/" DAMAGED, dir) < (int)sizeof aside)
        (void)rename(path, aside);
}

void alone_manifest_remove(const char *dir)
{
    char path[4096];

    if (snprintf(path, sizeof path, "%s/manifest.json", dir) < (int)sizeof path)
        (void)unlink(path);
    if (snprintf(path, sizeof path, "%s/" DAMAGED, dir) < (int)sizeof path)
        (void)unlink(path);
}
