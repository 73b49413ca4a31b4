/* main_fuzz_replay.c - a fuzz target without a fuzzer: the files that are named, then the same
 * inputs in every run. For compilers that have no libFuzzer, and for ctest. FUZZ_INPUTS: how many
 * (20000). */
#include "tests/fuzz/mutate.h"
#include <stdio.h>
#include <stdlib.h>

#define INPUT_BYTES_MAX 400
#define KEPT_BYTES_MAX  4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int feed_file(const char *path)
{
    static uint8_t input[KEPT_BYTES_MAX];
    FILE *file = fopen(path, "rb");

    if (!file) {
        perror(path);
        return 1;
    }
    size_t size = fread(input, 1, sizeof(input), file);
    fclose(file);
    LLVMFuzzerTestOneInput(input, size);
    return 0;
}

int main(int argc, char **argv)
{
    static uint8_t input[INPUT_BYTES_MAX];
    const char *wanted = getenv("FUZZ_INPUTS");
    long count = wanted ? strtol(wanted, NULL, 10) : 20000;

    for (int i = 1; i < argc; i++)
        if (feed_file(argv[i]))
            return 1;
    for (long i = 0; i < count; i++) {
        uint64_t seed = (uint64_t)i;
        size_t size = mutate_random(&seed) % (i % 4 == 0 ? INPUT_BYTES_MAX : 24) + 1;
        for (size_t k = 0; k < size; k++)
            input[k] = (uint8_t)mutate_random(&seed);
        input[0] = (uint8_t)(i % 8); /* the forms of input that targets know, one by one */
        LLVMFuzzerTestOneInput(input, size);
    }
    printf("%ld inputs\n", count + argc - 1);
    return 0;
}
