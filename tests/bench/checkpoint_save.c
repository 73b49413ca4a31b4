/* checkpoint_save.c - entries checkpoint.stall, persist, save, save_small: from a program's memory
 * to a sealed checkpoint on the disk.
 *
 * The way is that of an asynchronous save: one copy into a file in tmpfs (touched before, as slots
 * are), from there to the vault by pread. */
#include "base/file.h"
#include "checkpoint/shard_write.h"
#include "tests/bench/checkpoint_stand.h"
#include "tests/bench/figure.h"
#include "tests/bench/process.h"
#include "tests/bench/sample.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANKS_MAX 4
#define SHM_DIR   "/dev/shm"

/* A rank's half of a save: its memory, its image, and the file in tmpfs that takes the image. */
struct rank {
    struct checkpoint_memory memory;
    struct shard_image *image;
    struct shard_written written;
    int shm;
    void *slot;
    size_t slot_len;
};
struct save {
    const struct bench *bench;
    char *dir;
    struct layout_table *declared, *storage;
    uint32_t world;
    struct rank ranks[RANKS_MAX];
    struct io_pool *pool;
};

static enum status slot_make(struct rank *rank, struct error *err)
{
    char path[] = SHM_DIR "/rondo-bench-slot.XXXXXX";

    rank->slot_len = (size_t)shard_image_bytes(rank->image, 0);
    rank->shm = mkostemp(path, O_CLOEXEC);
    if (rank->shm < 0)
        return error_set(err, file_status(errno), "create %s: %s", path, strerror(errno));
    (void)unlink(path);
    if (posix_fallocate(rank->shm, 0, (off_t)rank->slot_len) != 0)
        return error_set(err, STATUS_EXHAUSTED, "no room for %zu bytes in " SHM_DIR,
                         rank->slot_len);
    rank->slot = mmap(NULL, rank->slot_len, PROT_READ | PROT_WRITE, MAP_SHARED, rank->shm, 0);
    if (rank->slot == MAP_FAILED)
        return error_set(err, STATUS_EXHAUSTED, "map a slot: %s", strerror(errno));
    memset(rank->slot, 1, rank->slot_len);
    return STATUS_OK;
}

static void save_fini(struct save *save)
{
    for (uint32_t i = 0; i < save->world; i++) {
        struct rank *rank = &save->ranks[i];
        if (rank->slot && rank->slot != MAP_FAILED)
            (void)munmap(rank->slot, rank->slot_len);
        if (rank->shm > 0)
            (void)close(rank->shm);
        checkpoint_stand_free(&rank->memory);
        shard_image_destroy(rank->image);
    }
    layout_table_destroy(save->storage);
    layout_table_destroy(save->declared);
    io_pool_destroy(save->pool);
    checkpoint_stand_end(save->dir);
}

static enum status save_init(struct save *save, const struct bench *bench,
                             const struct checkpoint_shape *shape, uint32_t world,
                             struct error *err)
{
    *save = (struct save){.bench = bench, .world = world};
    save->declared = checkpoint_stand_layout(shape, world, CHECKPOINT_ROWS);
    enum status st = layout_table_assign(save->declared, &save->storage, err);
    if (st == STATUS_OK)
        st = checkpoint_stand_begin(bench, &save->dir, err);
    if (st == STATUS_OK)
        st = io_pool_create(NULL, &save->pool, err);
    for (uint32_t i = 0; i < world && st == STATUS_OK; i++) {
        struct rank *rank = &save->ranks[i];
        rank->memory = checkpoint_stand_memory(save->declared, i, true);
        st = shard_image_create(save->storage, i, &rank->image, err);
        if (st == STATUS_OK)
            st = slot_make(rank, err);
    }
    return st;
}

static enum status fill(struct save *save, uint32_t i, struct error *err)
{
    struct rank *rank = &save->ranks[i];

    return shard_image_fill(rank->image, save->declared, (const void *const *)rank->memory.pieces,
                            &rank->slot, err);
}

/* --- stall */

static enum status stall_run(struct save *save, double *copy, double *stall, struct error *err)
{
    const struct rank *rank = &save->ranks[0];
    double begin = checkpoint_stand_now();

    memcpy(rank->slot, rank->memory.bytes, rank->memory.len);
    *copy = checkpoint_stand_now() - begin;
    begin = checkpoint_stand_now();
    enum status st = fill(save, 0, err);
    *stall = checkpoint_stand_now() - begin;
    return st;
}

enum status bench_checkpoint_stall(struct bench *bench, struct error *err)
{
    struct sample ratio = {0}, rate = {0}, copies = {0};
    struct save save;
    double first = 0;
    enum status st = save_init(&save, bench, &checkpoint_stand_large, 1, err);

    for (uint32_t i = 0; i < bench_runs(bench, CHECKPOINT_STAND_RUNS) && st == STATUS_OK; i++) {
        double copy, stall;
        st = stall_run(&save, &copy, &stall, err);
        if (st != STATUS_OK)
            break;
        first = first > 0 ? first : stall;
        sample_add(&ratio, copy / stall);
        sample_add(&rate, (double)save.ranks[0].memory.len / stall / 1e9);
        sample_add(&copies, (double)save.ranks[0].memory.len / copy / 1e9);
        if (i == 1)
            figure_note("checkpoint.stall.second_to_first", first / stall, "ratio");
    }
    if (st == STATUS_OK) {
        figure_report("checkpoint.stall.ratio_to_memcpy", sample_quantile(&ratio, 0.5));
        figure_note("checkpoint.stall.gb_per_s", sample_quantile(&rate, 0.5), "GB/s");
        figure_note("checkpoint.stall.memcpy_gb_per_s", sample_quantile(&copies, 0.5), "GB/s");
    }
    sample_fini(&ratio);
    sample_fini(&rate);
    sample_fini(&copies);
    save_fini(&save);
    return st;
}

/* --- persist */

static enum status persist(struct save *save, uint32_t i, int dir, struct error *err)
{
    struct rank *rank = &save->ranks[i];
    const struct shard_write_options options = {.crcs =
                                                    shard_image_blocks(rank->image)->files[0].crcs};
    const struct shard_write_from from = {.fd = rank->shm, .bytes = rank->slot_len};

    return shard_write(save->pool, dir, shard_image_name(rank->image, 0), &from, &options,
                       &rank->written, err);
}

static enum status dd(const struct save *save, double *seconds, struct error *err)
{
    SCOPED_TEXT char *from = mem_printf("if=/proc/%d/fd/%d", (int)getpid(), save->ranks[0].shm);
    SCOPED_TEXT char *to = mem_printf("of=%s/dd", save->dir);
    const char *argv[] = {"dd", from, to, "bs=16M", "oflag=direct", "conv=fdatasync", NULL};
    enum status st = checkpoint_stand_time(argv, save->dir, seconds, err);

    (void)unlink(to + 3);
    return st;
}

struct persist_samples {
    struct sample dd, fio, rate, dd_rate, fio_rate;
};

static enum status persist_run(struct save *save, struct persist_samples *samples,
                               struct error *err)
{
    SCOPED_TEXT char *path =
        checkpoint_stand_path(save->dir, shard_image_name(save->ranks[0].image, 0));
    SCOPED_TEXT char *other = checkpoint_stand_path(save->dir, "fio");
    double bytes = (double)save->ranks[0].slot_len, dd_s = 0, fio = 0, begin;
    int dir = open(save->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum status st = dd(save, &dd_s, err);

    begin = checkpoint_stand_now();
    if (st == STATUS_OK)
        st = persist(save, 0, dir, err);
    double ours = checkpoint_stand_now() - begin;
    (void)unlink(path);
    if (st == STATUS_OK)
        st = checkpoint_stand_fio(other, true, save->ranks[0].slot_len, &fio, err);
    (void)unlink(other);
    (void)close(dir);
    sample_add(&samples->dd, dd_s / ours);
    sample_add(&samples->rate, bytes / ours / 1e9);
    sample_add(&samples->dd_rate, bytes / dd_s / 1e9);
    if (fio > 0) {
        sample_add(&samples->fio, bytes / ours / fio);
        sample_add(&samples->fio_rate, fio / 1e9);
    }
    return st;
}

enum status bench_checkpoint_persist(struct bench *bench, struct error *err)
{
    struct persist_samples samples = {0};
    struct save save;
    enum status st = save_init(&save, bench, &checkpoint_stand_large, 1, err);

    if (st == STATUS_OK)
        st = fill(&save, 0, err);
    for (uint32_t i = 0; i < bench_runs(bench, CHECKPOINT_STAND_RUNS) && st == STATUS_OK; i++)
        st = persist_run(&save, &samples, err);
    if (st == STATUS_OK) {
        figure_report("checkpoint.persist.ratio_to_dd", sample_quantile(&samples.dd, 0.5));
        figure_note("checkpoint.persist.gb_per_s", sample_quantile(&samples.rate, 0.5), "GB/s");
        figure_note("checkpoint.persist.dd_gb_per_s", sample_quantile(&samples.dd_rate, 0.5),
                    "GB/s");
    }
    if (st == STATUS_OK && samples.fio.count) {
        figure_report("checkpoint.persist.ratio_to_fio", sample_quantile(&samples.fio, 0.5));
        figure_note("checkpoint.persist.fio_gb_per_s", sample_quantile(&samples.fio_rate, 0.5),
                    "GB/s");
    }
    sample_fini(&samples.dd);
    sample_fini(&samples.fio);
    sample_fini(&samples.rate);
    sample_fini(&samples.dd_rate);
    sample_fini(&samples.fio_rate);
    save_fini(&save);
    return st;
}

/* --- save, end to end */

/* A process that was forked has none of these pages in its table: a worker's own are. */
static void *rank_touch(void *arg, uint32_t rank)
{
    const struct save *save = arg;
    const struct rank *own = &save->ranks[rank];
    volatile unsigned char *slot = own->slot;
    const volatile unsigned char *memory = own->memory.bytes;
    unsigned char sum = 0;

    for (size_t i = 0; i < own->slot_len; i += 4096)
        slot[i] = 1;
    for (size_t i = 0; i < own->memory.len; i += 4096)
        sum ^= memory[i];
    slot[0] = sum;
    return NULL;
}

static bool rank_fill(void *arg, uint32_t rank, void *prepared)
{
    (void)prepared;
    return fill(arg, rank, NULL) == STATUS_OK;
}

/* The ranks fill side by side; the parts are written, synced, and the manifest seals them. */
static enum status save_all(struct save *save, const char *name, double *seconds, struct error *err)
{
    SCOPED_TEXT char *dir = checkpoint_stand_path(save->dir, name);
    const struct checkpoint_rank what = {.prepare = rank_touch, .run = rank_fill, .arg = save};
    struct checkpoint_part parts[RANKS_MAX];
    double filled = 0, begin;
    uint64_t read_bytes;
    /* The processes leave their digests behind: they are made once more here, not timed. */
    enum status st = checkpoint_stand_ranks(&what, save->world, &filled, &read_bytes, err);

    for (uint32_t i = 0; i < save->world && st == STATUS_OK; i++)
        st = fill(save, i, err);
    begin = checkpoint_stand_now();
    if (st == STATUS_OK && mkdir(dir, 0755) != 0)
        st = error_set(err, file_status(errno), "make %s: %s", dir, strerror(errno));
    for (uint32_t i = 0; i < save->world && st == STATUS_OK; i++) {
        SCOPED_TEXT char *part = mem_printf("%s/trainer-%" PRIu32, dir, i);
        int fd = mkdir(part, 0755) == 0 ? open(part, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        parts[i] = (struct checkpoint_part){save->ranks[i].image, &save->ranks[i].written};
        st = fd < 0 ? error_set(err, file_status(errno), "make %s", part)
                    : persist(save, i, fd, err);
        if (st == STATUS_OK && fsync(fd) != 0)
            st = error_set(err, file_status(errno), "sync %s", part);
        if (fd >= 0)
            (void)close(fd);
    }
    if (st == STATUS_OK)
        st = checkpoint_stand_seal(dir, save->storage, parts, err);
    *seconds = filled + checkpoint_stand_now() - begin;
    figure_note("checkpoint.save.copy_s", filled, "s");
    figure_note("checkpoint.save.persist_s", *seconds - filled, "s");
    if (st == STATUS_OK)
        st = file_remove_tree(dir, err);
    return st;
}

static enum status save_against_torch(struct bench *bench, const struct checkpoint_shape *shape,
                                      const char *figure, const char *rate, struct error *err)
{
    SCOPED_TEXT char *tensors = mem_printf("%" PRIu32, shape->tensors);
    SCOPED_TEXT char *rows = mem_printf("%" PRIu32, shape->rows);
    SCOPED_TEXT char *columns = mem_printf("%" PRIu32, shape->columns);
    struct sample ratio = {0}, rates = {0};
    struct save save;
    bool torch = true;
    enum status st = save_init(&save, bench, shape, RANKS_MAX, err);

    for (uint32_t i = 0; i < bench_runs(bench, 5) && st == STATUS_OK; i++) {
        SCOPED_TEXT char *path = checkpoint_stand_path(save.dir ? save.dir : "", "torch");
        const char *args[] = {"save", path, tensors, rows, columns, NULL};
        double ours = 0, theirs = 0, peak;
        st = save_all(&save, "ours", &ours, err);
        torch = torch && checkpoint_stand_torch(bench, args, &theirs, &peak);
        (void)unlink(path);
        if (torch)
            sample_add(&ratio, theirs / ours);
        sample_add(&rates, (double)checkpoint_stand_bytes(shape) / ours / 1e9);
    }
    if (st == STATUS_OK && torch)
        figure_report(figure, sample_quantile(&ratio, 0.5));
    if (st == STATUS_OK)
        figure_note(rate, sample_quantile(&rates, 0.5), "GB/s");
    sample_fini(&ratio);
    sample_fini(&rates);
    save_fini(&save);
    return st;
}

enum status bench_checkpoint_save(struct bench *bench, struct error *err)
{
    return save_against_torch(bench, &checkpoint_stand_large, "checkpoint.save.ratio_to_torch",
                              "checkpoint.save.gb_per_s", err);
}

enum status bench_checkpoint_save_small(struct bench *bench, struct error *err)
{
    return save_against_torch(bench, &checkpoint_stand_small,
                              "checkpoint.save_small.ratio_to_torch",
                              "checkpoint.save_small.gb_per_s", err);
}
