/* checkpoint_stand.c - see checkpoint_stand.h: states, memory and checkpoints. Processes and rivals
 * are in checkpoint_rival.c. */
#include "tests/bench/checkpoint_stand.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/digest.h"
#include "checkpoint/shard_write.h"
#include "checkpoint/slot.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const struct checkpoint_shape checkpoint_stand_large = {32, 4096, 4096};
const struct checkpoint_shape checkpoint_stand_small = {8192, 256, 256};

uint64_t checkpoint_stand_bytes(const struct checkpoint_shape *shape)
{
    return (uint64_t)shape->tensors * shape->rows * shape->columns * 4;
}

double checkpoint_stand_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

char *checkpoint_stand_path(const char *dir, const char *name)
{
    return mem_printf("%s/%s", dir, name);
}

enum status checkpoint_stand_begin(const struct bench *bench, char **dir, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/rondo-bench-checkpoint.XXXXXX", bench->base_dir);

    if (!mkdtemp(path))
        return error_set(err, file_status(errno), "create %s: %s", path, strerror(errno));
    *dir = TAKE(path);
    return STATUS_OK;
}

void checkpoint_stand_end(char *dir)
{
    struct error err;

    if (dir && file_remove_tree(dir, &err) != STATUS_OK)
        (void)fprintf(stderr, "rondo-bench: %s\n", err.text);
    mem_free(dir);
}

/* --- states */

static void add_cuts(struct text *out, uint32_t size, uint32_t parts)
{
    text_add(out, "[");
    for (uint32_t i = 0; i <= parts; i++)
        text_addf(out, "%s%" PRIu64, i ? "," : "", (uint64_t)size * i / parts);
    text_add(out, "]");
}

static void add_ranks(struct text *out, uint32_t world, enum checkpoint_split split)
{
    text_add(out, split == CHECKPOINT_WHOLE ? "[" : "");
    for (uint32_t i = 0; i < world; i++)
        text_addf(out, split == CHECKPOINT_WHOLE ? "%s%" PRIu32 : "%s[%" PRIu32 "]", i ? "," : "",
                  i);
    text_add(out, split == CHECKPOINT_WHOLE ? "]" : "");
}

struct layout_table *checkpoint_stand_layout(const struct checkpoint_shape *shape, uint32_t world,
                                             enum checkpoint_split split)
{
    struct layout_table *table = NULL;
    struct text out;
    struct error err;

    text_init(&out, 0);
    text_addf(&out,
              "{\"format\":\"rondo-layout-1\",\"world\":%" PRIu32
              ",\"layouts\":[{\"kind\":\"grid\",\"cuts\":[",
              world);
    add_cuts(&out, shape->rows, split == CHECKPOINT_ROWS ? world : 1);
    text_add(&out, ",");
    add_cuts(&out, shape->columns, split == CHECKPOINT_COLUMNS ? world : 1);
    text_add(&out, "],\"ranks\":[");
    add_ranks(&out, world, split);
    text_add(&out, "]}],\"tensors\":[");
    for (uint32_t i = 0; i < shape->tensors; i++)
        text_addf(&out, "%s[\"layer.%05" PRIu32 "\",\"F32\",[%" PRIu32 ",%" PRIu32 "],0]",
                  i ? "," : "", i, shape->rows, shape->columns);
    text_add(&out, "],\"aliases\":{}}");
    if (layout_table_parse(text_get(&out), out.len, &table, &err) != STATUS_OK) {
        (void)fprintf(stderr, "rondo-bench: %s\n", err.text);
        abort();
    }
    text_fini(&out);
    return table;
}

/* --- memory */

void *checkpoint_stand_map(size_t len, bool random)
{
    static uint64_t state = 88172645463325252u;
    uint64_t *words =
        mmap(NULL, len + 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (words == MAP_FAILED) {
        (void)fprintf(stderr, "rondo-bench: %zu bytes: %s\n", len, strerror(errno));
        abort();
    }
    (void)madvise(words, len, MADV_HUGEPAGE);
    if (!random) {
        memset(words, 1, len);
        return words;
    }
    for (size_t i = 0; i < len / 8; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words[i] = state;
    }
    return words;
}

struct checkpoint_memory checkpoint_stand_memory(const struct layout_table *table, uint32_t rank,
                                                 bool random)
{
    struct checkpoint_memory memory = {0};
    size_t tensors = layout_table_count(table), at = 0;
    struct layout_box box;

    memory.pieces = mem_array(tensors + 1, sizeof *memory.pieces);
    for (size_t i = 0; i < tensors; i++)
        if (layout_table_pieces(table, i, rank, &box, 1))
            memory.len += layout_box_bytes(&box, layout_table_at(table, i));
    memory.bytes = checkpoint_stand_map(memory.len, random);
    for (size_t i = 0, piece = 0; i < tensors; i++)
        if (layout_table_pieces(table, i, rank, &box, 1)) {
            memory.pieces[piece++] = memory.bytes + at;
            at += layout_box_bytes(&box, layout_table_at(table, i));
        }
    return memory;
}

void checkpoint_stand_free(struct checkpoint_memory *memory)
{
    if (memory->bytes)
        (void)munmap(memory->bytes, memory->len + 64);
    mem_free(memory->pieces);
    *memory = (struct checkpoint_memory){0};
}

/* --- checkpoints */

static enum status put(const char *dir, struct text *manifest, const char *path, const void *bytes,
                       size_t len, struct error *err)
{
    SCOPED_TEXT char *whole = checkpoint_stand_path(dir, path);
    struct digest_file digest;
    enum status st = file_write_atomic(whole, bytes, len, 0644, err);

    if (st == STATUS_OK)
        st = digest_file(whole, false, &digest, err);
    if (st == STATUS_OK)
        text_addf(manifest,
                  "{\"path\":\"%s\",\"bytes\":%" PRIu64 ",\"crc32c\":%" PRIu32 ",\"xxh3\":\"%s\"}",
                  path, digest.bytes, digest.crc32c, digest.xxh3);
    return st;
}

static enum status seal_part(const char *dir, uint32_t rank, const struct checkpoint_part *part,
                             const struct layout_table *storage, struct text *manifest,
                             struct error *err)
{
    SCOPED_TEXT char *blocks = mem_printf("trainer-%" PRIu32 "/" SLOT_BLOCKS_NAME, rank);
    uint64_t bytes = shard_image_bytes(part->image, 0);
    size_t len = block_table_bytes(&bytes, 1);
    SCOPED(mem_free) void *table = mem_alloc(len);

    block_table_print(shard_image_blocks(part->image), table);
    text_addf(manifest,
              "%s{\"role\":\"trainer\",\"rank\":%" PRIu32
              ",\"node\":\"n\",\"samples\":0,\"layout_digest\":\"%s\",\"files\":[",
              rank ? "," : "", rank, layout_table_digest(storage));
    enum status st = put(dir, manifest, blocks, table, len, err);
    text_addf(manifest,
              ",{\"path\":\"trainer-%" PRIu32 "/%s\",\"bytes\":%" PRIu64 ",\"crc32c\":%" PRIu32
              ",\"xxh3\":\"%s\"}",
              rank, shard_image_name(part->image, 0), part->written->bytes, part->written->crc32c,
              part->written->xxh3);
    if (st == STATUS_OK && rank == 0) {
        struct text layout;
        text_init(&layout, 0);
        layout_table_print(storage, &layout);
        text_add(manifest, ",");
        st = put(dir, manifest, "trainer-0/" SLOT_LAYOUT_NAME, text_get(&layout), layout.len, err);
        text_fini(&layout);
    }
    text_add(manifest, "]}");
    return st;
}

enum status checkpoint_stand_seal(const char *dir, const struct layout_table *storage,
                                  const struct checkpoint_part *parts, struct error *err)
{
    SCOPED_TEXT char *path = checkpoint_stand_path(dir, MANIFEST_NAME);
    struct text manifest;
    enum status st = STATUS_OK;

    text_init(&manifest, 0);
    text_addf(&manifest,
              "{\"format\":\"rondo-checkpoint-2\",\"layout\":\"trainer-0/layout.json\","
              "\"layout_digest\":\"%s\",\"id\":1,\"job\":1,\"attempt\":1,\"step\":1,\"samples\":0,"
              "\"parent\":0,\"world\":%" PRIu32 ",\"created_us\":1,\"parts\":[",
              layout_table_digest(storage), layout_table_world(storage));
    for (uint32_t i = 0; i < layout_table_world(storage) && st == STATUS_OK; i++)
        st = seal_part(dir, i, &parts[i], storage, &manifest, err);
    text_add(&manifest, "]}");
    if (st == STATUS_OK)
        st = file_write_atomic(path, text_get(&manifest), manifest.len, 0644, err);
    text_fini(&manifest);
    return st;
}

static enum status save_rank(const char *dir, const struct layout_table *declared, uint32_t rank,
                             struct io_pool *pool, struct checkpoint_part *part, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/trainer-%" PRIu32, dir, rank);
    struct checkpoint_memory memory = checkpoint_stand_memory(declared, rank, true);
    uint64_t bytes = shard_image_bytes(part->image, 0);
    void *file = checkpoint_stand_map((size_t)bytes, false);
    const struct shard_write_from from = {.memory = file, .bytes = bytes};
    int fd = mkdir(path, 0755) == 0 ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    enum status st = fd < 0 ? error_set(err, file_status(errno), "make %s", path)
                            : shard_image_fill(part->image, declared,
                                               (const void *const *)memory.pieces, &file, err);

    if (st == STATUS_OK)
        st = shard_write(pool, fd, shard_image_name(part->image, 0), &from, NULL, part->written,
                         err);
    if (fd >= 0)
        (void)close(fd);
    (void)munmap(file, (size_t)bytes + 64);
    checkpoint_stand_free(&memory);
    return st;
}

enum status checkpoint_stand_save(const char *dir, const struct layout_table *declared,
                                  struct error *err)
{
    SCOPED(layout_table_destroy) struct layout_table *storage = NULL;
    SCOPED(io_pool_destroy) struct io_pool *pool = NULL;
    struct checkpoint_part parts[CHECKPOINT_STAND_RANKS] = {{0}};
    struct shard_written written[CHECKPOINT_STAND_RANKS];
    uint32_t world = layout_table_world(declared);
    enum status st = layout_table_assign(declared, &storage, err);

    if (st == STATUS_OK)
        st = io_pool_create(NULL, &pool, err);
    if (st == STATUS_OK && mkdir(dir, 0755) != 0)
        st = error_set(err, file_status(errno), "make %s: %s", dir, strerror(errno));
    for (uint32_t i = 0; i < world && st == STATUS_OK; i++) {
        parts[i].written = &written[i];
        st = shard_image_create(storage, i, &parts[i].image, err);
        if (st == STATUS_OK)
            st = save_rank(dir, declared, i, pool, &parts[i], err);
    }
    if (st == STATUS_OK)
        st = checkpoint_stand_seal(dir, storage, parts, err);
    for (uint32_t i = 0; i < world; i++)
        shard_image_destroy(parts[i].image);
    return st;
}

/* --- cold and warm */

static enum status cold_check(int fd, size_t len, const char *path, struct error *err)
{
    size_t pages = (len + 4095) / 4096, there = 0;
    SCOPED(mem_free) void *memory = mem_alloc(pages + 1);
    const unsigned char *seen = memory;
    void *map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED || mincore(map, len, memory) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "mincore %s: %s", path, strerror(errno));
    (void)munmap(map, len);
    for (size_t i = 0; i < pages; i++)
        there += seen[i] & 1;
    return there == 0 ? STATUS_OK
                      : error_set(err, STATUS_UNAVAILABLE, "%zu of %zu pages of %s stay in memory",
                                  there, pages, path);
}

enum status checkpoint_stand_cold_file(const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    enum status st;

    if (fd < 0 || fstat(fd, &info) != 0)
        return error_set(err, file_status(errno), "open %s: %s", path, strerror(errno));
    (void)fsync(fd);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    st = info.st_size ? cold_check(fd, (size_t)info.st_size, path, err) : STATUS_OK;
    (void)close(fd);
    return st;
}

static enum status warm_file(const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t cap = (size_t)1 << 20;
    SCOPED(mem_free) void *block = mem_alloc(cap);
    ssize_t got = 1;

    while (fd >= 0 && (got = read(fd, block, cap)) > 0)
        continue;
    if (fd < 0 || got < 0)
        return error_set(err, file_status(errno), "read %s: %s", path, strerror(errno));
    (void)close(fd);
    return STATUS_OK;
}

typedef enum status (*file_fn)(const char *path, struct error *err);

/* Every shard of the checkpoint. */
static enum status each_shard(const char *dir, file_fn fn, struct error *err)
{
    SCOPED(reader_close) struct reader *reader = NULL;
    enum status st = reader_open(dir, "", NULL, &reader, err);

    for (size_t i = 0; st == STATUS_OK && i < reader_manifest(reader)->parts_count; i++) {
        const struct manifest_part *part = &reader_manifest(reader)->parts[i];
        for (size_t k = 0; st == STATUS_OK && k < part->files_count; k++) {
            SCOPED_TEXT char *path = checkpoint_stand_path(dir, part->files[k].path);
            if (strstr(path, "/shard-"))
                st = fn(path, err);
        }
    }
    return st;
}

enum status checkpoint_stand_cold(const char *dir, struct error *err)
{
    return each_shard(dir, checkpoint_stand_cold_file, err);
}

enum status checkpoint_stand_warm(const char *dir, struct error *err)
{
    return each_shard(dir, warm_file, err);
}

enum status checkpoint_stand_load(const char *dir, const struct layout_table *target, uint32_t rank,
                                  uint32_t ranks_here, void *const *pieces, double *seconds,
                                  struct error *err)
{
    const struct reader_options options = {.ranks_here = ranks_here, .rank_here = rank};
    SCOPED(reader_close) struct reader *reader = NULL;
    double begin = checkpoint_stand_now();
    enum status st = reader_open(dir, "", &options, &reader, err);

    if (st == STATUS_OK)
        st = reader_load(reader, target, rank, pieces, NULL, err);
    *seconds = checkpoint_stand_now() - begin;
    return st;
}
