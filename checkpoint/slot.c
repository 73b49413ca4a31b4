/* slot.c - see slot.h. */
#include "checkpoint/slot.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/digest.h"

#define BYTES_MAX ((uint64_t)1 << 50)

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

uint64_t slot_bytes(const uint64_t *file_bytes, size_t count)
{
    uint64_t total = SLOT_HEAD_BYTES;

    if (count > SLOT_FILES_MAX)
        return 0;
    for (size_t i = 0; i < count; i++) {
        if (file_bytes[i] > BYTES_MAX - total)
            return 0;
        total += align_up(file_bytes[i]);
    }
    return total > BYTES_MAX ? 0 : total;
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
}

int slot_place(const char *name)
{
    size_t len = strnlen(name, SLOT_NAME_MAX);
    bool known =
        len < SLOT_NAME_MAX && strncmp(name, "slot-", 5) == 0 && (name[5] == '0' || name[5] == '1');

    if (!known || (name[6] && (name[6] != '.' || !name[7])) ||
        (name[6] && strspn(name + 7, "0123456789") != len - 7))
        return -1;
    return name[5] - '0';
}

bool slot_name_ok(const char *name)
{
    size_t len = strnlen(name, SLOT_NAME_MAX);

    if (len == 0 || len == SLOT_NAME_MAX || name[0] == '.')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!name_char(name[i]))
            return false;
    return true;
}

/* Of the head as it is, the state and the sum itself counted as 0. */
static uint32_t head_crc(const struct slot_head *head)
{
    static const unsigned char zeros[sizeof(uint32_t)];
    const unsigned char *bytes = (const unsigned char *)head;
    const size_t state = offsetof(struct slot_head, state);
    const size_t sum = offsetof(struct slot_head, crc32c);
    uint32_t crc = digest_crc32c(0, bytes, state);

    crc = digest_crc32c(crc, zeros, sizeof zeros);
    crc = digest_crc32c(crc, bytes + state + sizeof zeros, sum - state - sizeof zeros);
    crc = digest_crc32c(crc, zeros, sizeof zeros);
    return digest_crc32c(crc, bytes + sum + sizeof zeros, sizeof *head - sum - sizeof zeros);
}

/* --- worker */

void slot_begin(struct slot_head *head, uint64_t bytes, int64_t step)
{
    atomic_store(&head->state, SLOT_FILLING);
    memset(head->files, 0, sizeof head->files);
    memset(head->reserved, 0, sizeof head->reserved);
    memset(head->layout_digest, 0, sizeof head->layout_digest);
    head->magic = SLOT_MAGIC;
    head->version = SLOT_VERSION;
    head->step = step;
    head->samples = -1;
    head->bytes = bytes;
    head->files_count = 0;
    head->crc32c = 0;
}

enum status slot_add(struct slot_head *head, const char *name, uint64_t bytes, uint64_t *offset,
                     struct error *err)
{
    uint32_t count = head->files_count;
    uint64_t at = SLOT_HEAD_BYTES;

    if (!slot_name_ok(name) || slot_find(head, name))
        return error_set(err, STATUS_INVALID, "'%.80s' is no name of a file, or is there already",
                         name);
    if (count >= SLOT_FILES_MAX)
        return error_set(err, STATUS_EXHAUSTED, "a part has at most %d files", SLOT_FILES_MAX);
    if (count > 0)
        at = align_up(head->files[count - 1].offset + head->files[count - 1].bytes);
    if (at > head->bytes || bytes > head->bytes - at)
        return error_set(err, STATUS_EXHAUSTED, "the slot has no room for %s", name);
    memcpy(head->files[count].name, name, strlen(name) + 1);
    head->files[count].offset = *offset = at;
    head->files[count].bytes = bytes;
    head->files_count = count + 1;
    return STATUS_OK;
}

void slot_fill(struct slot_head *head, int64_t samples, const char *layout_digest)
{
    size_t len = strnlen(layout_digest, sizeof head->layout_digest - 1);

    head->samples = samples;
    memcpy(head->layout_digest, layout_digest, len);
    head->layout_digest[len] = '\0';
    head->crc32c = head_crc(head);
    atomic_store(&head->state, SLOT_FILLED);
}

/* --- agent */

const struct slot_file *slot_find(const struct slot_head *head, const char *name)
{
    for (uint32_t i = 0; i < head->files_count && i < SLOT_FILES_MAX; i++)
        if (strcmp(head->files[i].name, name) == 0)
            return &head->files[i];
    return NULL;
}

static enum status bad(struct error *err, const char *what)
{
    return error_set(err, STATUS_DATA_LOSS, "slot: %s", what);
}

static enum status read_head(int fd, struct slot_head *out, uint64_t *bytes, struct error *err)
{
    unsigned char *to = (unsigned char *)out;
    size_t have = 0;
    struct stat st;

    if (fstat(fd, &st) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "slot: stat: %s", strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size < SLOT_HEAD_BYTES)
        return bad(err, "not a file, or shorter than its head");
    *bytes = (uint64_t)st.st_size;
    while (have < sizeof *out) {
        ssize_t got = pread(fd, to + have, sizeof *out - have, (off_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, STATUS_UNAVAILABLE, "slot: read: %s", strerror(errno));
        if (got == 0)
            return bad(err, "its worker cut it");
        have += (size_t)got;
    }
    return STATUS_OK;
}

static bool digest_ok(const char *digest)
{
    return strnlen(digest, 40) == 32 && strspn(digest, "0123456789abcdef") == 32;
}

/* Ascending, aligned, inside: so none lies on another. */
static enum status check_files(const struct slot_head *head, struct error *err)
{
    uint64_t end = SLOT_HEAD_BYTES;

    for (uint32_t i = 0; i < head->files_count; i++) {
        const struct slot_file *file = &head->files[i];
        if (!slot_name_ok(file->name))
            return bad(err, "the name of a file");
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(file->name, head->files[k].name) == 0)
                return bad(err, "two files of one name");
        if (file->offset % SLOT_ALIGN || file->offset < end || file->offset > head->bytes ||
            file->bytes > head->bytes - file->offset)
            return bad(err, "a file's place");
        end = file->offset + file->bytes;
    }
    return STATUS_OK;
}

enum status slot_read(int fd, struct slot_head *out, struct error *err)
{
    uint64_t bytes = 0;
    enum status status = read_head(fd, out, &bytes, err);

    if (status != STATUS_OK)
        return status;
    const uint32_t state = atomic_load(&out->state);
    if (out->magic == 0 || state == SLOT_EMPTY || state == SLOT_FILLING)
        return error_set(err, STATUS_PRECONDITION, "slot: nothing was handed over in it");
    if (out->magic != SLOT_MAGIC || out->version != SLOT_VERSION || state > SLOT_PERSISTED)
        return bad(err, "another magic, version or state");
    if (out->crc32c != head_crc(out))
        return bad(err, "its head does not match its sum");
    if (out->bytes > bytes || out->step < 0 || out->samples < -1 || out->files_count == 0 ||
        out->files_count > SLOT_FILES_MAX || !digest_ok(out->layout_digest))
        return bad(err, "a number of its head");
    return check_files(out, err);
}

enum status slot_set_state(int fd, enum slot_state state, struct error *err)
{
    uint32_t value = state;

    if (pwrite(fd, &value, sizeof value, offsetof(struct slot_head, state)) != sizeof value)
        return error_set(err, STATUS_UNAVAILABLE, "slot: write its state: %s", strerror(errno));
    return STATUS_OK;
}
