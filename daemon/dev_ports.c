/* dev_ports.c - see dev_ports.h. */
#include "daemon/dev_ports.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static uint32_t slice_first(uint32_t slice)
{
    return DEV_PORTS_FIRST + slice * DEV_PORTS_EACH;
}

/* The lease, or -1. */
static int lease(uint32_t slice)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int len = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "rondo-dev-ports-%u",
                       slice_first(slice));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    if (bind(fd, (const struct sockaddr *)(const void *)&address, size) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool take(uint32_t slice, struct dev_ports *out)
{
    int fd = lease(slice);

    if (fd < 0)
        return false;
    *out = (struct dev_ports){slice_first(slice), slice_first(slice) + DEV_PORTS_EACH - 1, fd};
    return true;
}

enum status dev_ports_take(uint32_t wanted, uint32_t index, struct dev_ports *out)
{
    bool known = wanted >= DEV_PORTS_FIRST && (wanted - DEV_PORTS_FIRST) % DEV_PORTS_EACH == 0 &&
                 (wanted - DEV_PORTS_FIRST) / DEV_PORTS_EACH < DEV_PORTS_SLICES;
    uint32_t before =
        known ? (wanted - DEV_PORTS_FIRST) / DEV_PORTS_EACH : index % DEV_PORTS_SLICES;

    if (take(before, out))
        return STATUS_OK;
    for (uint32_t i = 0; i < DEV_PORTS_SLICES; i++)
        if (take((index + i) % DEV_PORTS_SLICES, out))
            return STATUS_OK;
    *out = (struct dev_ports){slice_first(before), slice_first(before) + DEV_PORTS_EACH - 1, -1};
    return STATUS_EXHAUSTED;
}

void dev_ports_release(struct dev_ports *ports)
{
    if (ports->lease >= 0)
        close(ports->lease);
    ports->lease = -1;
}
