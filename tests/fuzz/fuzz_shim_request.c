/* fuzz_shim_request.c - any bytes, and changed good ones, as a shim's request. What is accepted
 * holds the bounds that the shim relies on; nothing is read outside the mapping. */
#include "agent/shim/shim_request.h"
#include "tests/fuzz/mutate.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DOCUMENT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t add(uint8_t *out, size_t at, uint16_t type, const void *bytes, uint32_t len)
{
    const struct shim_wire_field field = {type, 0, len};

    memcpy(out + at, &field, sizeof(field));
    memcpy(out + at + sizeof(field), bytes, len);
    return at + sizeof(field) + len;
}

static size_t make_good(uint8_t *out)
{
    static const struct shim_wire_rlimit limits[] = {{4, 0, 0, 0}, {7, 0, 1024, 4096}};
    static const uint32_t number = 1000, numbers[] = {1, 2, 3};
    struct shim_wire_header header = {SHIM_WIRE_MAGIC, SHIM_WIRE_VERSION, 13, 0};
    size_t at = sizeof(header);

    at = add(out, at, SHIM_WIRE_ARGV, "/bin/true\0-x", 13);
    at = add(out, at, SHIM_WIRE_ENV, "A=b\0PATH=/bin", 14);
    at = add(out, at, SHIM_WIRE_CWD, "/tmp", 4);
    at = add(out, at, SHIM_WIRE_UID, &number, 4);
    at = add(out, at, SHIM_WIRE_GID, &number, 4);
    at = add(out, at, SHIM_WIRE_GROUPS, numbers, sizeof(numbers));
    at = add(out, at, SHIM_WIRE_UMASK, &number, 4);
    at = add(out, at, SHIM_WIRE_RLIMITS, limits, sizeof(limits));
    at = add(out, at, SHIM_WIRE_CPUS, numbers, sizeof(numbers));
    at = add(out, at, SHIM_WIRE_OUT, "out", 3);
    at = add(out, at, SHIM_WIRE_ERR, "err", 3);
    at = add(out, at, SHIM_WIRE_CGROUP2, "/sys/fs/cgroup/x", 16);
    at = add(out, at, SHIM_WIRE_TAG, "1.1.w.0.1", 9);
    header.length = at;
    memcpy(out, &header, sizeof(header));
    return at;
}

static void check_strings(char *const *list)
{
    size_t count = 0, bytes = 0;

    for (; list[count]; count++)
        bytes += strlen(list[count]) + 1;
    if (count > SHIM_WIRE_STRINGS_MAX || bytes > SHIM_WIRE_REQUEST_MAX)
        abort();
}

static void check(const struct shim_request *request)
{
    static volatile uint64_t sum; /* that every item is read */

    check_strings(request->argv);
    check_strings(request->env);
    if (!request->argv[0] || strchr(request->out, '/') || strchr(request->err, '/') ||
        request->out[0] == '.' || request->err[0] == '.' || !request->out[0] || !request->err[0])
        abort();
    if (request->has_user && (request->uid == UINT32_MAX || request->gid == UINT32_MAX))
        abort();
    for (uint32_t i = 0; i < request->groups_count; i++)
        sum = sum + request->groups[i];
    for (uint32_t i = 0; i < request->cpus_count; i++)
        sum = sum + request->cpus[i];
    for (uint32_t i = 0; i < request->rlimits_count; i++)
        sum = sum + request->rlimits[i].soft + request->rlimits[i].resource;
}

static void feed(const void *bytes, size_t len)
{
    static int fd = -1;
    struct shim_request request;

    if (fd < 0)
        fd = memfd_create("request", MFD_CLOEXEC);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, bytes, len, 0) != (ssize_t)len)
        abort();
    if (shim_request_read(&request, fd) == 0)
        check(&request);
    shim_request_fini(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t document[DOCUMENT_MAX];
    struct shim_wire_header header;

    if (size == 0)
        return 0;
    if (data[0] == 0) {
        feed(data + 1, size - 1);
        return 0;
    }
    size_t len = make_good(document);
    mutate_apply(data + 1, size - 1, document, &len, sizeof(document));
    if (data[0] % 2 && len >= sizeof(header)) { /* right again, so that fields are looked at */
        memcpy(&header, document, sizeof(header));
        header.length = len;
        memcpy(document, &header, sizeof(header));
    }
    feed(document, len);
    return 0;
}
