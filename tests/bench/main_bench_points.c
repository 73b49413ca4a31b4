/* main_bench_points.c - rondo-bench-points FIFO REPORTS: a worker that reports 64 values a step as
 * fast as librondo takes them, after telling when it began. */
#include "tests/bench/points.h"
#include "tests/bench/stamp.h"
#include "worker/rondo.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int complain(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, rondo_error());
    return 1;
}

static int64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
    static char names[POINTS_A_REPORT][8];
    struct rondo_value values[POINTS_A_REPORT];
    struct rondo_job job = {.size = sizeof(job)};

    if (argc != 3)
        return 2;
    long reports = strtol(argv[2], NULL, 10);
    if (rondo_join(NULL, &job) < 0)
        return complain("join");
    struct stamp stamp = {.at_us = now_us(), .pid = (int32_t)getpid()};
    int fd = open(argv[1], O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || write(fd, &stamp, sizeof(stamp)) != (ssize_t)sizeof(stamp))
        return 1;
    for (int i = 0; i < POINTS_A_REPORT; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "m%02d", i);
        values[i] = (struct rondo_value){.name = names[i]};
    }
    for (long step = 1; step <= reports; step++) {
        for (int i = 0; i < POINTS_A_REPORT; i++)
            values[i].number = points_value(step, i);
        if (rondo_report(step, step, values, POINTS_A_REPORT) < 0)
            return complain("report");
    }
    return rondo_finish() < 0 ? complain("finish") : 0;
}
