/* main_sim.c - runs seeds of the simulated cluster.
 *
 * sim --first-seed A --seeds N: ends with "N seeds, B broken"; exit 1 when B > 0. sim --seed S: one
 * seed with its whole trace, run twice: both runs must agree. */
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "tests/sim/cluster.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool run(uint64_t seed, bool verbose, uint64_t *hash)
{
    char root[] = "/dev/shm/rondo-sim-XXXXXX", fallback[] = "/tmp/rondo-sim-XXXXXX";
    char *dir = mkdtemp(root);
    struct error err;

    if (!dir)
        dir = mkdtemp(fallback);
    if (!dir) {
        fprintf(stderr, "sim: no directory for the disks\n");
        exit(2);
    }
    bool good = cluster_run(seed, dir, verbose, hash);
    if (file_remove_tree(dir, &err) != STATUS_OK)
        fprintf(stderr, "sim: %s\n", err.text);
    return good;
}

static int run_one(uint64_t seed)
{
    uint64_t first, second;
    bool good = run(seed, true, &first);

    good &= run(seed, false, &second) || !good;
    if (first != second)
        printf("seed %" PRIu64 ": two runs differ\n", seed);
    printf("seed %" PRIu64 ": %s\n", seed, good && first == second ? "held" : "BROKEN");
    return good && first == second ? 0 : 1;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, seeds = 20, seed = 0, hash, broken = 0;

    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t *target = !strcmp(argv[i], "--first-seed") ? &first
                           : !strcmp(argv[i], "--seeds")    ? &seeds
                           : !strcmp(argv[i], "--seed")     ? &seed
                                                            : NULL;
        if (!target || !text_to_u64(argv[i + 1], 0, UINT64_MAX, target)) {
            fprintf(stderr, "usage: sim [--first-seed A] [--seeds N] | --seed S\n");
            return 2;
        }
    }
    log_setup("sim", LOG_INFO, -1);
    if (seed)
        return run_one(seed);
    for (uint64_t at = first; at < first + seeds; at++)
        if (!run(at, false, &hash)) {
            printf("seed %" PRIu64 " is broken; replay it: sim --seed %" PRIu64 "\n", at, at);
            broken++;
        }
    printf("%" PRIu64 " seeds, %" PRIu64 " broken\n", seeds, broken);
    return broken ? 1 : 0;
}
