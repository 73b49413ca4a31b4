/* main_bench_probe.c - rondo-bench-probe FIFO [hold|MS]: a worker whose first act is to look at the
 * clock; then it tells the time, and ends, waits to be killed, or ends after MS milliseconds: what
 * its end costs is not part of how long a start takes. Linked statically: what comes before main()
 * is the kernel's exec and no loader. */
#include "tests/bench/stamp.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int32_t number_of(const char *name)
{
    const char *text = getenv(name);

    return text ? (int32_t)strtol(text, NULL, 10) : 0;
}

int main(int argc, char **argv)
{
    struct timespec now;
    struct stamp stamp = {0};

    clock_gettime(CLOCK_MONOTONIC, &now);
    stamp.at_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    stamp.pid = (int32_t)getpid();
    stamp.rank = number_of("RANK");
    stamp.attempt = number_of("RONDO_ATTEMPT");
    if (argc < 2)
        return 2;
    int fd = open(argv[1], O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || write(fd, &stamp, sizeof(stamp)) != (ssize_t)sizeof(stamp))
        return 1;
    close(fd);
    if (argc > 2 && strcmp(argv[2], "hold") == 0)
        for (;;)
            pause();
    if (argc > 2)
        usleep((useconds_t)strtoul(argv[2], NULL, 10) * 1000);
    return 0;
}
