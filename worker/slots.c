/* slots.c - see slots.h. */
#include "worker/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct kept {
    char path[4096];
    void *memory;
    uint64_t bytes;
    dev_t device;
    ino_t inode;
};
static struct kept all[SLOT_PLACES];
static unsigned next;

static void drop(struct kept *kept)
{
    if (kept->memory)
        (void)munmap(kept->memory, kept->bytes);
    kept->memory = NULL;
    kept->path[0] = '\0';
}

static enum status take_blocks(int fd, uint64_t bytes)
{
    int problem;

    do
        problem = posix_fallocate(fd, 0, (off_t)bytes);
    while (problem == EINTR);
    errno = problem;
    return problem == 0 ? STATUS_OK : STATUS_EXHAUSTED;
}

static enum status map_fd(int fd, const char *path, uint64_t bytes, struct kept *kept,
                          struct error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != bytes)
        return error_set(err, STATUS_PRECONDITION, "slot %s is no file of %llu bytes", path,
                         (unsigned long long)bytes);
    if (take_blocks(fd, bytes) != STATUS_OK)
        return error_set(err, STATUS_EXHAUSTED, "room for slot %s: %s", path, strerror(errno));
    kept->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (kept->memory == MAP_FAILED) {
        kept->memory = NULL;
        return error_set(err, STATUS_EXHAUSTED, "map slot %s: %s", path, strerror(errno));
    }
    (void)madvise(kept->memory, bytes, MADV_POPULATE_WRITE);
    kept->bytes = bytes;
    kept->device = st.st_dev;
    kept->inode = st.st_ino;
    memcpy(kept->path, path, strlen(path) + 1);
    return STATUS_OK;
}

/* Still the file of that name? */
static bool is_same(const struct kept *kept, const char *path, uint64_t bytes)
{
    struct stat st;

    return kept->memory && kept->bytes == bytes && strcmp(kept->path, path) == 0 &&
           lstat(path, &st) == 0 && st.st_dev == kept->device && st.st_ino == kept->inode &&
           (uint64_t)st.st_size == bytes;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Which one to give up: what has that name, or that place in another size: nobody else would ever
 * ask for it, and its memory stays taken while it is mapped. Else the older. */
static unsigned find_victim(const char *path)
{
    int place = slot_place(last_part(path));

    for (unsigned i = 0; i < SLOT_PLACES; i++)
        if (strcmp(all[i].path, path) == 0)
            return i;
    for (unsigned i = 0; i < SLOT_PLACES; i++)
        if (all[i].memory && place >= 0 && slot_place(last_part(all[i].path)) == place)
            return i;
    return next;
}

enum status slots_map(const char *path, uint64_t bytes, struct slot_head **out, struct error *err)
{
    enum status st;
    int fd;

    for (unsigned i = 0; i < SLOT_PLACES; i++)
        if (is_same(&all[i], path, bytes)) {
            *out = all[i].memory;
            return STATUS_OK;
        }
    if (strlen(path) >= sizeof all[0].path)
        return error_set(err, STATUS_INVALID, "the path of a slot is too long");
    next = find_victim(path);
    drop(&all[next]);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return error_set(err, STATUS_UNAVAILABLE, "open slot %s: %s", path, strerror(errno));
    st = map_fd(fd, path, bytes, &all[next], err);
    (void)close(fd);
    if (st != STATUS_OK)
        return st;
    *out = all[next].memory;
    next = (next + 1) % SLOT_PLACES;
    return STATUS_OK;
}
