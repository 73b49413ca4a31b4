/* shim_request.c - decoding of the request file. */
#include "agent/shim/shim_request.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little endian");

/* One mapping: the file, padded to a pointer, then the argv and env arrays. */
static int shim_request_map(struct shim_request *request, int fd, size_t *size)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return errno;
    if (st.st_size < (off_t)sizeof(struct shim_wire_header) ||
        (uint64_t)st.st_size > SHIM_WIRE_REQUEST_MAX)
        return EPROTO;
    *size = (size_t)st.st_size;
    request->map_size =
        ((*size + 15) & ~(size_t)15) + 2 * (SHIM_WIRE_STRINGS_MAX + 1) * sizeof(char *);
    void *map =
        mmap(NULL, request->map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return errno;
    request->map = map;
    for (size_t at = 0; at < *size;) {
        ssize_t got = pread(fd, (char *)map + at, *size - at, (off_t)at);
        if (got < 0 && errno != EINTR)
            return errno;
        if (got == 0)
            return EPROTO;
        if (got > 0)
            at += (size_t)got;
    }
    return 0;
}

static bool shim_request_text(char *out, size_t cap, const char *bytes, uint32_t length)
{
    if (length == 0 || length >= cap || memchr(bytes, 0, length))
        return false;
    memcpy(out, bytes, length);
    out[length] = '\0';
    return true;
}

static bool shim_request_name(char *out, size_t cap, const char *bytes, uint32_t length)
{
    return shim_request_text(out, cap, bytes, length) && !strchr(out, '/') && out[0] != '.';
}

static bool shim_request_strings(char **list, char *bytes, uint32_t length)
{
    size_t count = 0;
    if (length > 0 && bytes[length - 1] != '\0')
        return false;
    for (char *at = bytes; at < bytes + length; at += strlen(at) + 1) {
        if (count == SHIM_WIRE_STRINGS_MAX)
            return false;
        list[count++] = at;
    }
    list[count] = NULL;
    return true;
}

static bool shim_request_u32(uint32_t *out, const char *bytes, uint32_t length)
{
    if (length != sizeof(*out))
        return false;
    memcpy(out, bytes, sizeof(*out));
    return true;
}

/* An array of fixed-size items, moved in place to an aligned address just before its bytes: a
 * field's header is 8 bytes, which is room enough. */
static bool shim_request_array(const void **out, uint32_t *count, char *bytes, uint32_t length,
                               size_t item, uint32_t max)
{
    if (length % item != 0 || length / item > max)
        return false;
    char *aligned = (char *)((uintptr_t)bytes & ~(uintptr_t)7);
    memmove(aligned, bytes, length);
    *out = aligned;
    *count = (uint32_t)(length / item);
    return true;
}

static bool shim_request_list(struct shim_request *r, uint16_t type, char *bytes, uint32_t length)
{
    const void *items = NULL;
    switch (type) {
    case SHIM_WIRE_GROUPS:
        if (!shim_request_array(&items, &r->groups_count, bytes, length, 4, SHIM_WIRE_GROUPS_MAX))
            return false;
        r->groups = items;
        return true;
    case SHIM_WIRE_CPUS:
        if (!shim_request_array(&items, &r->cpus_count, bytes, length, 4, SHIM_WIRE_CPUS_MAX))
            return false;
        r->cpus = items;
        return true;
    default:
        if (!shim_request_array(&items, &r->rlimits_count, bytes, length,
                                sizeof(struct shim_wire_rlimit), SHIM_WIRE_RLIMITS_MAX))
            return false;
        r->rlimits = items;
        return true;
    }
}

static bool shim_request_field(struct shim_request *r, const struct shim_wire_field *field,
                               char *bytes)
{
    const uint32_t length = field->length;
    switch (field->type) {
    case SHIM_WIRE_ARGV:
        return length > 0 && shim_request_strings(r->argv, bytes, length);
    case SHIM_WIRE_ENV:
        return shim_request_strings(r->env, bytes, length);
    case SHIM_WIRE_CWD:
        return shim_request_text(r->cwd, sizeof(r->cwd), bytes, length);
    case SHIM_WIRE_UID:
        r->has_user = true;
        return shim_request_u32(&r->uid, bytes, length);
    case SHIM_WIRE_GID:
        return shim_request_u32(&r->gid, bytes, length);
    case SHIM_WIRE_UMASK:
        return shim_request_u32(&r->umask, bytes, length);
    case SHIM_WIRE_GROUPS:
    case SHIM_WIRE_CPUS:
    case SHIM_WIRE_RLIMITS:
        return shim_request_list(r, field->type, bytes, length);
    case SHIM_WIRE_OUT:
        return shim_request_name(r->out, sizeof(r->out), bytes, length);
    case SHIM_WIRE_ERR:
        return shim_request_name(r->err, sizeof(r->err), bytes, length);
    case SHIM_WIRE_CGROUP2:
        return shim_request_text(r->cgroup2, sizeof(r->cgroup2), bytes, length);
    case SHIM_WIRE_CGROUP1:
        return shim_request_text(r->cgroup1, sizeof(r->cgroup1), bytes, length);
    case SHIM_WIRE_CGROUP_PIDS:
        return shim_request_text(r->cgroup_pids, sizeof(r->cgroup_pids), bytes, length);
    case SHIM_WIRE_TAG:
        return shim_request_text(r->tag, sizeof(r->tag), bytes, length);
    case SHIM_WIRE_BOOT_ID:
        return shim_request_text(r->boot_id, sizeof(r->boot_id), bytes, length);
    default:
        return !(field->flags & SHIM_WIRE_MUST);
    }
}

static int shim_request_decode(struct shim_request *r, size_t size)
{
    struct shim_wire_header header;
    char *bytes = r->map;
    memcpy(&header, bytes, sizeof(header));
    if (memcmp(header.magic, SHIM_WIRE_MAGIC, sizeof(header.magic)) != 0 ||
        header.version != SHIM_WIRE_VERSION || header.length != size)
        return EPROTO;
    size_t at = sizeof(header);
    uint32_t seen = 0; /* a type may come once */
    for (uint32_t i = 0; i < header.fields; i++) {
        struct shim_wire_field field;
        if (size - at < sizeof(field))
            return EPROTO;
        memcpy(&field, bytes + at, sizeof(field));
        at += sizeof(field);
        if (field.length > size - at || (field.type < 32 && (seen & (1u << field.type))))
            return EPROTO;
        if (field.type < 32)
            seen |= 1u << field.type;
        if (!shim_request_field(r, &field, bytes + at))
            return EPROTO;
        at += field.length;
    }
    const uint32_t user = 1u << SHIM_WIRE_UID | 1u << SHIM_WIRE_GID | 1u << SHIM_WIRE_GROUPS;
    const uint32_t need = 1u << SHIM_WIRE_ARGV | 1u << SHIM_WIRE_OUT | 1u << SHIM_WIRE_ERR;
    if ((seen & user) != 0 && (seen & user) != user)
        return EPROTO;
    if (r->has_user && (r->uid == UINT32_MAX || r->gid == UINT32_MAX))
        return EPROTO; /* the kernel reads this number as "no change" */
    return at == size && (seen & need) == need ? 0 : EPROTO;
}

int shim_request_read(struct shim_request *r, int fd)
{
    size_t size = 0;
    memset(r, 0, sizeof(*r));
    r->umask = 022;
    int err = shim_request_map(r, fd, &size);
    if (err)
        return err;
    r->argv = (char **)(void *)((char *)r->map + ((size + 15) & ~(size_t)15));
    r->env = r->argv + SHIM_WIRE_STRINGS_MAX + 1;
    return shim_request_decode(r, size);
}

void shim_request_fini(struct shim_request *r)
{
    if (r->map)
        munmap(r->map, r->map_size);
    r->map = NULL;
    r->argv = r->env = NULL;
    r->groups = r->cpus = NULL;
    r->rlimits = NULL;
}
