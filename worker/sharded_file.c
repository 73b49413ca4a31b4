/* sharded_file.c - a save into files, durable when it returns: where there is no agent, or no room
 * in memory, or when the program wants it so. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/shard_write.h"
#include "worker/member.h"
#include "worker/sharded.h"

#define OTHERS 3 /* blocks, state, layout */

struct files {
    int dir;
    struct io_pool *pool;
    uint32_t shards, count;
    void **images;            /* of the shards: anonymous memory */
    struct alone_file *names; /* and digests */
};

static void files_fini(struct sharded *sharded, struct files *files)
{
    for (uint32_t i = 0; files->images && i < files->shards; i++)
        if (files->images[i])
            (void)munmap(files->images[i], shard_image_bytes(sharded->image, i));
    mem_free(files->images);
    mem_free(files->names);
    io_pool_destroy(files->pool);
    if (files->dir >= 0)
        (void)close(files->dir);
}

static enum status make_images(struct sharded *sharded, struct files *files, struct error *err)
{
    for (uint32_t i = 0; i < files->shards; i++) {
        void *memory = mmap(NULL, shard_image_bytes(sharded->image, i), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return error_set(err, STATUS_EXHAUSTED, "memory for %s: %s",
                             shard_image_name(sharded->image, i), strerror(errno));
        files->images[i] = memory;
    }
    return STATUS_OK;
}

static enum status write_file(struct files *files, const char *name, const void *bytes,
                              uint64_t len, const uint32_t *crcs, struct error *err)
{
    const struct shard_write_from from = {.memory = bytes, .fd = -1, .bytes = len};
    const struct shard_write_options options = {.crcs = crcs};
    struct alone_file *file = &files->names[files->count];
    struct shard_written written;
    enum status st = shard_write(files->pool, files->dir, name, &from, &options, &written, err);

    if (st != STATUS_OK)
        return st;
    (void)snprintf(file->name, sizeof file->name, "%s", name);
    file->bytes = written.bytes;
    file->crc32c = written.crc32c;
    memcpy(file->xxh3, written.xxh3, sizeof file->xxh3);
    files->count++;
    return STATUS_OK;
}

static enum status write_others(struct sharded *sharded, struct files *files,
                                const struct rondo_save *save, struct error *err)
{
    const struct block_table *blocks = shard_image_blocks(sharded->image);
    uint64_t *sizes = mem_array(files->shards + 1, sizeof *sizes);
    enum status st;

    for (uint32_t i = 0; i < files->shards; i++)
        sizes[i] = shard_image_bytes(sharded->image, i);
    size_t len = block_table_bytes(sizes, files->shards);
    mem_free(sizes);
    SCOPED(mem_free) void *table = mem_alloc(len);
    block_table_print(blocks, table);
    st = write_file(files, "blocks.crc32c", table, len, NULL, err);
    if (st == STATUS_OK)
        st = write_file(files, "state.json", save->state, save->state_len, NULL, err);
    /* The agent learns by it that the part is sharded; of the others' a reader takes no notice. */
    if (st == STATUS_OK && (member.job.rank == 0 || member.job.managed))
        st = write_file(files, "layout.json", text_get(&sharded->layout), sharded->layout.len, NULL,
                        err);
    return st;
}

static enum status write_all(struct sharded *sharded, const struct pieces *pieces,
                             struct files *files, const struct rondo_save *save, struct error *err)
{
    enum status st = io_pool_create(NULL, &files->pool, err);

    if (st == STATUS_OK)
        st = make_images(sharded, files, err);
    if (st == STATUS_OK)
        st = shard_image_fill(sharded->image, sharded->declared,
                              (const void *const *)pieces->memory, files->images, err);
    for (uint32_t i = 0; st == STATUS_OK && i < files->shards; i++)
        st = write_file(files, shard_image_name(sharded->image, i), files->images[i],
                        shard_image_bytes(sharded->image, i),
                        shard_image_blocks(sharded->image)->files[i].crcs, err);
    if (st == STATUS_OK)
        st = write_others(sharded, files, save, err);
    return st;
}

static int sync_dir(int dir)
{
    return fsync(dir) == 0 ? 0 : member_fail_errno(errno, "sync the checkpoint's directory");
}

static int commit_alone(struct sharded *sharded, const struct files *files,
                        const struct rondo_save *save)
{
    struct alone_part part = {.files_count = files->count, .files = files->names};
    int problem;

    memcpy(part.layout_digest, layout_table_digest(sharded->storage), 33);
    problem = alone_commit_sharded(&member.alone, save->step, save->samples, &part);
    if (problem == -EINVAL)
        return member_fail(RONDO_INVALID, "another rank has declared another layout");
    return problem ? member_fail_errno(-problem, "commit the checkpoint") : 0;
}

static int save_into(struct sharded *sharded, const struct pieces *pieces, struct files *files,
                     const char *path, struct rondo_save *save)
{
    struct error err = {0};
    enum status st;
    int result;

    files->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (files->dir < 0)
        return member_fail_errno(errno, "open the checkpoint's directory");
    files->images = mem_array(files->shards + 1, sizeof *files->images);
    files->names = mem_array(files->shards + OTHERS, sizeof *files->names);
    st = write_all(sharded, pieces, files, save, &err);
    if (st != STATUS_OK)
        return sharded_fail(st, &err);
    result = sync_dir(files->dir);
    if (result == 0 && !member.job.managed)
        result = commit_alone(sharded, files, save);
    return result;
}

/* Keeps the text of the failure that led here. */
static void give_up(const struct rondo_save *save)
{
    char text[256];

    (void)snprintf(text, sizeof text, "%s", member_error());
    (void)rondo_abort_save(save->step, 5000);
    (void)member_fail(RONDO_INTERNAL, "%s", text);
}

int sharded_file_save(struct sharded *sharded, const struct pieces *pieces, struct rondo_save *save)
{
    struct files files = {.dir = -1, .shards = shard_image_files(sharded->image)};
    char path[4096];
    int result;

    if (files.shards + OTHERS > ALONE_FILES_MAX)
        return member_fail(RONDO_INVALID, "%u pieces of one tensor on a rank: too many",
                           files.shards);
    if (!member.job.managed && !member.alone.over && alone_is_sealed(&member.alone, save->step))
        return member_fail(RONDO_EXISTS, "step %lld is saved in %s already", (long long)save->step,
                           member.alone.root);
    result = rondo_save_dir(save->step, path, sizeof path, save->ms);
    if (result != 0)
        return result;
    result = save_into(sharded, pieces, &files, path, save);
    files_fini(sharded, &files);
    if (result != 0) {
        give_up(save);
        return result;
    }
    sharded->due_step = save->step;
    sharded->due_us = ask_now_us();
    sharded->due_how = RONDO_IN_FILE;
    return 0;
}

int sharded_file_finish(struct sharded *sharded, struct rondo_save *save)
{
    struct ask_request request = {.kind = ASK_COMMIT, .step = save->step, .samples = save->samples};
    struct ask_answer answer;
    int result;

    save->how = RONDO_IN_FILE;
    if (!member.job.managed)
        return 0;
    memcpy(request.layout_digest, layout_table_digest(sharded->storage), 33);
    result = member_ask(&request, save->ms, &answer);
    if (result != -RONDO_DEADLINE)
        member_set_in_save(0);
    return result;
}
