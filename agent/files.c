/* files.c - building batches of file steps. Pure. */
#include "agent/files.h"
#include "base/mem.h"

struct files_batch *files_batch_create(void)
{
    return NEW(struct files_batch);
}

void files_names_destroy(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mem_free(names[i]);
    mem_free(names);
}

static void step_fini(struct files_step *step)
{
    mem_free(step->path);
    mem_free(step->to);
    mem_free(step->bytes);
    files_names_destroy(step->names, step->names_count);
    mem_free(step->home);
}

void files_batch_destroy(struct files_batch *batch)
{
    if (!batch)
        return;
    for (size_t i = 0; i < batch->count; i++)
        step_fini(&batch->steps[i]);
    mem_free(batch->steps);
    mem_free(batch);
}

struct files_step *files_step_add(struct files_batch *batch, enum files_kind kind, const char *path)
{
    batch->steps = mem_resize(batch->steps, batch->count + 1, sizeof(*batch->steps));
    struct files_step *step = &batch->steps[batch->count++];
    *step = (struct files_step){.kind = kind, .path = mem_strdup(path), .uid = -1, .gid = -1};
    return step;
}

struct files_step *files_read(struct files_batch *batch, const char *path, int64_t offset,
                              size_t max)
{
    struct files_step *step = files_step_add(batch, FILES_READ, path);
    step->offset = offset;
    step->max = max;
    return step;
}

struct files_step *files_write(struct files_batch *batch, const char *path, const void *bytes,
                               size_t len, uint32_t mode)
{
    struct files_step *step = files_step_add(batch, FILES_WRITE, path);
    step->bytes = mem_dup(bytes, len);
    step->len = len;
    step->mode = mode;
    return step;
}

struct files_step *files_append(struct files_batch *batch, const char *path, const void *bytes,
                                size_t len)
{
    struct files_step *step = files_step_add(batch, FILES_APPEND, path);
    step->bytes = mem_dup(bytes, len);
    step->len = len;
    step->mode = 0600;
    return step;
}

struct files_step *files_dir(struct files_batch *batch, const char *path, uint32_t mode)
{
    struct files_step *step = files_step_add(batch, FILES_DIR, path);
    step->mode = mode;
    return step;
}
