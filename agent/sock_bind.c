/* sock_bind.c - see sock_bind.h. */
#include "agent/sock_bind.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int bind_at(int dir, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dir, name);
    (void)unlinkat(dir, name, 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
        fchmodat(dir, name, 0600, 0) == 0)
        return fd;
    int failed = errno;
    (void)close(fd);
    errno = failed;
    return -1;
}

/* Through the directory's descriptor, which makes the name short. */
int sock_bind(const char *path)
{
    SCOPED_TEXT char *parent = mem_strdup(path);
    char *slash = strrchr(parent, '/');
    if (!slash) {
        errno = EINVAL;
        return -1;
    }
    *slash = '\0';
    int dir = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -1;
    int fd = bind_at(dir, slash + 1);
    int failed = errno;
    (void)close(dir);
    errno = failed;
    return fd;
}
