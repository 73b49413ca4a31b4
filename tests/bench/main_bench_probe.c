/* main_bench_probe.c - rondo-bench-probe FIFO [hold|MS]: a worker whose first act is to look at the
 * clock; then it tells the time, and ends, waits to be killed, or ends after MS milliseconds: what
 * its end costs is no part of how long a start takes.
 *
 * Linked with the shim's few functions in place of the C library, where it can be: before its first
 * instruction there is the kernel's exec and nothing else, no loader and no start of a library. */
#include "tests/bench/stamp.h"
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int32_t number_of(const char *text)
{
    int32_t number = 0;

    for (; *text >= '0' && *text <= '9'; text++)
        number = number * 10 + (*text - '0');
    return number;
}

/* `env`: "NAME=" and its length. */
static int32_t number_in(char **env, const char *name)
{
    size_t len = strlen(name);

    for (; *env; env++)
        if (strncmp(*env, name, len) == 0)
            return number_of(*env + len);
    return 0;
}

static void rest_ms(int32_t ms)
{
    struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};

    syscall(SYS_nanosleep, &pause, NULL);
}

int main(int argc, char **argv)
{
    struct timespec now;
    struct stamp stamp = {0};

    clock_gettime(CLOCK_MONOTONIC, &now);
    stamp.at_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    stamp.pid = (int32_t)getpid();
    stamp.rank = number_in(argv + argc + 1, "RANK=");
    stamp.attempt = number_in(argv + argc + 1, "RONDO_ATTEMPT=");
    if (argc < 2)
        return 2;
    int fd = open(argv[1], O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || write(fd, &stamp, sizeof(stamp)) != (ssize_t)sizeof(stamp))
        return 1;
    close(fd);
    if (argc > 2 && strcmp(argv[2], "hold") == 0)
        for (;;)
            rest_ms(1000000);
    if (argc > 2)
        rest_ms(number_of(argv[2]));
    return 0;
}
