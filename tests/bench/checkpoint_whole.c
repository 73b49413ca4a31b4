/* checkpoint_whole.c - entries checkpoint.verify, export, naive, slowdown: what is done with whole
 * checkpoints, and what training notices of it. */
#include "base/file.h"
#include "checkpoint/digest.h"
#include "checkpoint/export_hf.h"
#include "checkpoint/reshard.h"
#include "checkpoint/shard_write.h"
#include "checkpoint/verify.h"
#include "tests/bench/checkpoint_stand.h"
#include "tests/bench/figure.h"
#include "tests/bench/process.h"
#include "tests/bench/sample.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNS 5

struct whole {
    char *dir, *path;
    struct layout_table *layout;
};

static enum status whole_init(struct whole *whole, const struct bench *bench, uint32_t world,
                              struct error *err)
{
    *whole = (struct whole){0};
    whole->layout = checkpoint_stand_layout(&checkpoint_stand_large, world, CHECKPOINT_ROWS);
    enum status st = checkpoint_stand_begin(bench, &whole->dir, err);
    if (st != STATUS_OK)
        return st;
    whole->path = checkpoint_stand_path(whole->dir, "checkpoint");
    return checkpoint_stand_save(whole->path, whole->layout, err);
}

static void whole_fini(struct whole *whole)
{
    layout_table_destroy(whole->layout);
    mem_free(whole->path);
    checkpoint_stand_end(whole->dir);
}

static double total(void)
{
    return (double)checkpoint_stand_bytes(&checkpoint_stand_large);
}

/* --- verify */

/* The slower of reading the bytes, cold, and of digesting them. */
static enum status verify_limit(const char *path, const void *memory, double *seconds,
                                struct error *err)
{
    SCOPED_TEXT char *shard =
        checkpoint_stand_path(path, "trainer-0/shard-00001-model-00001-of-00001.safetensors");
    SCOPED_TEXT char *from = mem_printf("if=%s", shard);
    const char *dd[] = {"dd", from, "of=/dev/null", "bs=4M", "iflag=direct", NULL};
    double rate = 0, begin = checkpoint_stand_now();
    uint32_t crc = digest_crc32c(0, memory, (size_t)total());
    double digest = checkpoint_stand_now() - begin + (crc == 1 ? 1e-9 : 0);
    enum status st = checkpoint_stand_cold_file(shard, err);

    if (st == STATUS_OK)
        st = checkpoint_stand_fio(shard, false, (uint64_t)total(), &rate, err);
    if (st == STATUS_OK && rate <= 0)
        st = checkpoint_stand_time(dd, "/", seconds, err);
    else
        *seconds = rate > 0 ? total() / rate : 0;
    *seconds = digest > *seconds ? digest : *seconds;
    return st;
}

static enum status verify_once(const char *path, double *seconds, struct error *err)
{
    SCOPED(verify_report_destroy) struct verify_report *report = NULL;
    enum status st = checkpoint_stand_cold(path, err);
    double begin = checkpoint_stand_now();

    if (st == STATUS_OK)
        st = verify_run(path, "", NULL, NULL, &report, err);
    *seconds = checkpoint_stand_now() - begin;
    if (st == STATUS_OK && report->found_count)
        st = error_set(err, STATUS_DATA_LOSS, "%s: %s", report->found[0].file,
                       report->found[0].text);
    return st;
}

enum status bench_checkpoint_verify(struct bench *bench, struct error *err)
{
    struct sample ratio = {0}, rate = {0};
    struct whole whole;
    enum status st = whole_init(&whole, bench, 1, err);
    void *memory = checkpoint_stand_map((size_t)total(), false);

    for (uint32_t i = 0; i < bench_runs(bench, RUNS) && st == STATUS_OK; i++) {
        double limit = 0, ours = 0;
        bool first = i % 2; /* whoever reads second may find the bytes in the host's cache */
        if (first)
            st = verify_once(whole.path, &ours, err);
        if (st == STATUS_OK)
            st = verify_limit(whole.path, memory, &limit, err);
        if (st == STATUS_OK && !first)
            st = verify_once(whole.path, &ours, err);
        sample_add(&ratio, limit / ours);
        sample_add(&rate, total() / ours / 1e9);
    }
    if (st == STATUS_OK) {
        figure_report("checkpoint.verify.ratio_to_limit", sample_quantile(&ratio, 0.5));
        figure_note("checkpoint.verify.gb_per_s", sample_quantile(&rate, 0.5), "GB/s");
    }
    (void)munmap(memory, (size_t)total() + 64);
    sample_fini(&ratio);
    sample_fini(&rate);
    whole_fini(&whole);
    return st;
}

/* --- export */

static enum status export_once(const struct whole *whole, double *seconds, struct error *err)
{
    const struct reader_options options = {.partial = true};
    SCOPED(reader_close) struct reader *reader = NULL;
    SCOPED_TEXT char *target = checkpoint_stand_path(whole->dir, "export");
    enum status st = checkpoint_stand_cold(whole->path, err);
    double begin = checkpoint_stand_now();

    if (st == STATUS_OK)
        st = reader_open(whole->path, "", &options, &reader, err);
    if (st == STATUS_OK)
        st = export_hf_write(reader, target, NULL, NULL, err);
    *seconds = checkpoint_stand_now() - begin;
    return st == STATUS_OK ? file_remove_tree(target, err) : st;
}

static enum status copy_once(const struct whole *whole, double *seconds, struct error *err)
{
    SCOPED_TEXT char *target = checkpoint_stand_path(whole->dir, "copy");
    const char *argv[] = {
        "sh",        "-c",   "cp -r \"$0\" \"$1\" && find \"$1\" -type f -exec sync {} +",
        whole->path, target, NULL};
    enum status st = checkpoint_stand_cold(whole->path, err);

    if (st == STATUS_OK)
        st = checkpoint_stand_time(argv, "/", seconds, err);
    return st == STATUS_OK ? file_remove_tree(target, err) : st;
}

enum status bench_checkpoint_export(struct bench *bench, struct error *err)
{
    struct sample ratio = {0};
    struct whole whole;
    enum status st = whole_init(&whole, bench, 8, err);

    for (uint32_t i = 0; i < bench_runs(bench, RUNS) && st == STATUS_OK; i++) {
        double ours = 0, theirs = 0;
        bool first = i % 2;
        if (first)
            st = export_once(&whole, &ours, err);
        if (st == STATUS_OK)
            st = copy_once(&whole, &theirs, err);
        if (st == STATUS_OK && !first)
            st = export_once(&whole, &ours, err);
        sample_add(&ratio, theirs / ours);
    }
    if (st == STATUS_OK)
        figure_report("checkpoint.export.ratio_to_cp", sample_quantile(&ratio, 0.5));
    sample_fini(&ratio);
    whole_fini(&whole);
    return st;
}

/* --- into files of another layout */

struct copying {
    const struct whole *whole;
    const struct layout_table *storage;
    double *peak_mib; /* shared with the process that does it */
};

static double peak_mib(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static bool copying_run(void *arg, uint32_t rank, void *prepared)
{
    const struct copying *copying = arg;
    const struct reader_options options = {.partial = true};
    SCOPED(reader_close) struct reader *reader = NULL;
    SCOPED_TEXT char *target = checkpoint_stand_path(copying->whole->dir, "resharded");
    struct error err = {0};
    double before = peak_mib();
    enum status st = reader_open(copying->whole->path, "", &options, &reader, &err);

    (void)rank, (void)prepared;
    if (st == STATUS_OK)
        st = reshard_copy(reader, copying->storage, target, NULL, NULL, &err);
    *copying->peak_mib = peak_mib() - before;
    if (st != STATUS_OK)
        (void)fprintf(stderr, "rondo-bench: %s\n", err.text);
    return st == STATUS_OK;
}

static enum status copying_once(const struct copying *copying, double *seconds, struct error *err)
{
    SCOPED_TEXT char *target = checkpoint_stand_path(copying->whole->dir, "resharded");
    const struct checkpoint_rank what = {.run = copying_run, .arg = (void *)(uintptr_t)copying};
    uint64_t read_bytes;
    enum status st = checkpoint_stand_cold(copying->whole->path, err);

    if (st == STATUS_OK)
        st = checkpoint_stand_ranks(&what, 1, seconds, &read_bytes, err);
    return st == STATUS_OK ? file_remove_tree(target, err) : st;
}

/* As many bytes read and written at once by dd, the least that any copy can take. */
static enum status disk_once(const struct whole *whole, double *seconds, struct error *err)
{
    SCOPED_TEXT char *command = mem_printf(
        "(for f in %s/*/shard-*; do dd if=$f of=/dev/null bs=8M iflag=direct; "
        "done) 2>/dev/null & dd if=/dev/zero of=%s/disk bs=8M count=256 oflag=direct 2>/dev/null; "
        "wait; rm %s/disk",
        whole->path, whole->dir, whole->dir);
    const char *argv[] = {"sh", "-c", command, NULL};
    enum status st = checkpoint_stand_cold(whole->path, err);

    return st == STATUS_OK ? checkpoint_stand_time(argv, "/", seconds, err) : st;
}

static bool naive_once(const struct bench *bench, const char *dir, double *seconds, double *peak)
{
    const char *args[] = {"reshard", dir, "8", "6", NULL};
    struct error err;

    for (int i = 0; i < 8; i++) {
        SCOPED_TEXT char *shard = mem_printf("%s/s%d", dir, i);
        if (checkpoint_stand_cold_file(shard, &err) != STATUS_OK)
            return false;
    }
    return checkpoint_stand_torch(bench, args, seconds, peak);
}

enum status bench_checkpoint_naive(struct bench *bench, struct error *err)
{
    SCOPED(layout_table_destroy)
    struct layout_table *declared =
        checkpoint_stand_layout(&checkpoint_stand_large, 6, CHECKPOINT_ROWS);
    SCOPED(layout_table_destroy) struct layout_table *storage = NULL;
    struct sample ratio = {0}, memory = {0};
    struct whole whole;
    enum status st = whole_init(&whole, bench, 8, err);
    const char *shards[] = {"shards", whole.dir ? whole.dir : "/", "8", "32", "4096", "4096", NULL};
    double *peak = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double seconds, theirs_peak;
    bool torch = st == STATUS_OK && checkpoint_stand_torch(bench, shards, &seconds, &theirs_peak);

    if (st == STATUS_OK)
        st = layout_table_assign(declared, &storage, err);
    for (uint32_t i = 0; i < bench_runs(bench, 3) && st == STATUS_OK && torch; i++) {
        const struct copying copying = {&whole, storage, peak};
        double ours = 0, theirs = 0, disk = 0;
        st = copying_once(&copying, &ours, err);
        if (st == STATUS_OK)
            st = disk_once(&whole, &disk, err);
        torch = st == STATUS_OK && naive_once(bench, whole.dir, &theirs, &theirs_peak);
        if (torch) {
            sample_add(&ratio, theirs / ours);
            sample_add(&memory, *peak / theirs_peak);
            figure_note("checkpoint.reshard.copy_s", ours, "s");
            figure_note("checkpoint.reshard.naive_s", theirs, "s");
            figure_note("checkpoint.reshard.disk_s", disk, "s");
        }
    }
    if (st == STATUS_OK && torch) {
        figure_report("checkpoint.reshard.ratio_to_naive", sample_quantile(&ratio, 0.5));
        figure_report("checkpoint.reshard.peak_to_naive", sample_quantile(&memory, 0.5));
    }
    (void)munmap(peak, 4096);
    sample_fini(&ratio);
    sample_fini(&memory);
    whole_fini(&whole);
    return st;
}

/* --- what two busy workers notice */

#define BUSY 2

static pid_t busy_start(atomic_uint_least64_t *count)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    for (uint64_t x = 1;; atomic_fetch_add_explicit(count, 1, memory_order_relaxed))
        for (int i = 0; i < 20000; i++)
            x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

static uint64_t busy_sum(const atomic_uint_least64_t *counts)
{
    uint64_t sum = 0;

    for (int i = 0; i < BUSY; i++)
        sum += atomic_load(&counts[i]);
    return sum;
}

static double cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Work of the busy ones a second, while a file of that memory is written (NULL: while nothing is).
 */
static enum status slowdown_rate(const atomic_uint_least64_t *counts, struct io_pool *pool,
                                 const char *dir, const void *memory, double *rate, double *share,
                                 struct error *err)
{
    const struct shard_write_from from = {.memory = memory, .bytes = (uint64_t)total()};
    struct shard_written written;
    double begin = checkpoint_stand_now(), cpu = cpu_seconds();
    uint64_t before = busy_sum(counts);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum status st = STATUS_OK;

    if (memory)
        st = shard_write(pool, fd, "slow", &from, NULL, &written, err);
    else
        (void)usleep(1500000);
    double seconds = checkpoint_stand_now() - begin;
    *rate = (double)(busy_sum(counts) - before) / seconds;
    *share = (cpu_seconds() - cpu) / seconds / (double)sysconf(_SC_NPROCESSORS_ONLN) * 100;
    (void)unlinkat(fd, "slow", 0);
    (void)close(fd);
    return st;
}

enum status bench_checkpoint_slowdown(struct bench *bench, struct error *err)
{
    static const struct io_pool_options as_agents = {.background = true};
    SCOPED(io_pool_destroy) struct io_pool *pool = NULL;
    struct sample beyond = {0}, all = {0};
    char *dir = NULL;
    enum status st = checkpoint_stand_begin(bench, &dir, err);
    void *memory = checkpoint_stand_map((size_t)total(), true);
    atomic_uint_least64_t *counts =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t busy[BUSY];

    for (int i = 0; i < BUSY; i++)
        busy[i] = busy_start(&counts[i]);
    if (st == STATUS_OK)
        st = io_pool_create(&as_agents, &pool, err);
    for (uint32_t i = 0; i < bench_runs(bench, RUNS) && st == STATUS_OK; i++) {
        double alone, with = 0, share = 0, idle;
        st = slowdown_rate(counts, pool, dir, NULL, &alone, &idle, err);
        if (st == STATUS_OK)
            st = slowdown_rate(counts, pool, dir, memory, &with, &share, err);
        double lost = (1 - with / alone) * 100;
        sample_add(&all, lost);
        sample_add(&beyond, lost > share ? lost - share : 0);
    }
    for (int i = 0; i < BUSY; i++) {
        (void)kill(busy[i], SIGKILL);
        (void)waitpid(busy[i], NULL, 0);
    }
    if (st == STATUS_OK) {
        figure_report("checkpoint.slowdown.pct", sample_quantile(&beyond, 0.5));
        figure_note("checkpoint.slowdown.with_cpu_pct", sample_quantile(&all, 0.5), "%");
    }
    (void)munmap(memory, (size_t)total() + 64);
    (void)munmap(counts, 4096);
    sample_fini(&beyond);
    sample_fini(&all);
    checkpoint_stand_end(dir);
    return st;
}
