/* checkpoint_rival.c - processes of the entries checkpoint.*: ranks that begin together, and what
 * others do instead. */
#include "base/file.h"
#include "tests/bench/checkpoint_stand.h"
#include "tests/bench/process.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_MS 300000
#define PYTHON   "/usr/bin/python3"

enum status checkpoint_stand_time(const char *const *argv, const char *dir, double *seconds,
                                  struct error *err)
{
    struct process_result result;
    enum status st = process_must(argv, dir, NULL, LIMIT_MS, &result, err);

    *seconds = (double)result.wall_us / 1e6;
    return st;
}

static bool has_fio(void)
{
    static const char *const argv[] = {CHECKPOINT_STAND_FIO, "--version", NULL};
    static int there = -1;
    struct process_result result;

    if (there < 0) {
        there = process_run(argv, "/", NULL, 10000, &result, NULL) == STATUS_OK && result.code == 0;
        if (!there)
            (void)fputs("rondo-bench: no fio here (scripts/setup.sh installs it): the figures "
                        "against it are left out\n",
                        stderr);
    }
    return there;
}

static enum status fio_rate(const char *out, const char *way, double *rate, struct error *err)
{
    json_error_t problem;
    json_t *root = json_load_file(out, JSON_DISABLE_EOF_CHECK, &problem);
    const json_t *job = json_array_get(json_object_get(root, "jobs"), 0);
    const json_t *side = json_object_get(job, way);
    double bytes = json_number_value(json_object_get(side, "io_bytes"));
    double ms = json_number_value(json_object_get(side, "runtime"));

    json_decref(root);
    if (bytes <= 0 || ms <= 0)
        return error_set(err, STATUS_UNKNOWN, "fio told no rate");
    *rate = bytes / ms * 1e3;
    return STATUS_OK;
}

enum status checkpoint_stand_fio(const char *path, bool write, uint64_t bytes, double *rate,
                                 struct error *err)
{
    SCOPED_TEXT char *name = mem_printf("--filename=%s", path);
    SCOPED_TEXT char *size = mem_printf("--size=%" PRIu64, bytes & ~UINT64_C(4095));
    SCOPED_TEXT char *out = mem_printf("%s.fio-out", path);
    const char *argv[] = {CHECKPOINT_STAND_FIO,
                          "--name=x",
                          name,
                          size,
                          write ? "--rw=write" : "--rw=read",
                          "--bs=4M",
                          "--iodepth=8",
                          "--direct=1",
                          "--ioengine=libaio",
                          "--fallocate=posix",
                          "--invalidate=0",
                          write ? "--end_fsync=1" : "--readonly",
                          "--output-format=json",
                          NULL};
    struct process_result result;
    enum status st;

    *rate = 0;
    if (!has_fio())
        return STATUS_OK;
    st = process_must(argv, "/", out, LIMIT_MS, &result, err);
    if (st == STATUS_OK)
        st = fio_rate(out, write ? "write" : "read", rate, err);
    (void)unlink(out);
    return st;
}

bool checkpoint_stand_torch(const struct bench *bench, const char *const *args, double *seconds,
                            double *peak_mib)
{
    SCOPED_TEXT char *script = mem_printf("%s/bench/checkpoint_rival.py", bench->bin);
    SCOPED_TEXT char *out = mem_printf("%s/rondo-bench-torch.%d", bench->base_dir, (int)getpid());
    SCOPED_TEXT char *text = NULL;
    const char *argv[12] = {PYTHON, script};
    struct process_result result;
    struct error err = {0};
    size_t len;
    char *end;

    for (size_t i = 0; args[i] && i + 3 < COUNT_OF(argv); i++)
        argv[i + 2] = args[i];
    enum status st = process_must(argv, "/", out, LIMIT_MS, &result, &err);
    if (st == STATUS_OK)
        st = file_read(out, 65536, &text, &len, &err);
    (void)unlink(out);
    if (st != STATUS_OK) {
        (void)fprintf(stderr, "rondo-bench: no figures against torch: %s\n", err.text);
        return false;
    }
    *seconds = strtod(text, &end);
    *peak_mib = strtod(end, NULL);
    return *seconds > 0;
}

/* --- ranks */

struct told {
    double end;
    uint64_t read_bytes;
    bool good;
};

static uint64_t bytes_from_disk(void)
{
    SCOPED_TEXT char *text = NULL;
    const char *line;
    size_t len;

    if (file_read("/proc/self/io", 65536, &text, &len, NULL) != STATUS_OK ||
        !(line = strstr(text, "read_bytes:")))
        return 0;
    return strtoull(line + 11, NULL, 10);
}

static void rank_main(const struct checkpoint_rank *what, uint32_t rank, int ready, int go,
                      int tell)
{
    void *prepared = what->prepare ? what->prepare(what->arg, rank) : NULL;
    uint64_t before = bytes_from_disk();
    struct told told = {0};
    char byte = 1;

    if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 0) /* closed: begin */
        _exit(1);
    told.good = what->run(what->arg, rank, prepared);
    told.end = checkpoint_stand_now();
    told.read_bytes = bytes_from_disk() - before;
    _exit(write(tell, &told, sizeof told) == (ssize_t)sizeof told ? 0 : 1);
}

static bool ranks_ready(int fd, uint32_t count)
{
    char byte;

    for (uint32_t i = 0; i < count; i++)
        if (read(fd, &byte, 1) != 1)
            return false;
    return true;
}

static bool ranks_told(int fd, uint32_t count, double begin, double *seconds, uint64_t *read_bytes)
{
    bool good = true;

    *seconds = 0;
    *read_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct told told;
        if (read(fd, &told, sizeof told) != (ssize_t)sizeof told)
            return false;
        *seconds = told.end - begin > *seconds ? told.end - begin : *seconds;
        *read_bytes += told.read_bytes;
        good &= told.good;
    }
    return good;
}

enum status checkpoint_stand_ranks(const struct checkpoint_rank *what, uint32_t count,
                                   double *seconds, uint64_t *read_bytes, struct error *err)
{
    int ready[2], go[2], tell[2];
    uint32_t started = 0;
    bool good = pipe(ready) == 0 && pipe(go) == 0 && pipe(tell) == 0;

    (void)fflush(NULL);
    for (; good && started < count; started++) {
        pid_t pid = fork();
        if (pid == 0) {
            (void)close(go[1]);
            (void)close(tell[0]);
            (void)close(ready[0]);
            rank_main(what, started, ready[1], go[0], tell[1]);
        }
        good = pid > 0;
    }
    (void)close(ready[1]);
    (void)close(tell[1]);
    good = good && ranks_ready(ready[0], count);
    double begin = checkpoint_stand_now();
    (void)close(go[1]);
    good = good && ranks_told(tell[0], count, begin, seconds, read_bytes);
    for (uint32_t i = 0; i < started; i++)
        (void)wait(NULL);
    (void)close(ready[0]);
    (void)close(go[0]);
    (void)close(tell[0]);
    return good ? STATUS_OK : error_set(err, STATUS_UNKNOWN, "a rank failed");
}
