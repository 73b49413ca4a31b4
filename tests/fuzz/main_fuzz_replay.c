/* main_fuzz_replay.c - a fuzz target without a fuzzer: the same inputs in every run. For compilers
 * that have no libFuzzer, and for ctest. FUZZ_INPUTS: how many (20000). */
#include "tests/fuzz/mutate.h"
#include <stdio.h>
#include <stdlib.h>

#define INPUT_BYTES_MAX 400

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(void)
{
    static uint8_t input[INPUT_BYTES_MAX];
    const char *wanted = getenv("FUZZ_INPUTS");
    long count = wanted ? strtol(wanted, NULL, 10) : 20000;

    for (long i = 0; i < count; i++) {
        uint64_t seed = (uint64_t)i;
        size_t size = mutate_random(&seed) % (i % 4 == 0 ? INPUT_BYTES_MAX : 24) + 1;
        for (size_t k = 0; k < size; k++)
            input[k] = (uint8_t)mutate_random(&seed);
        input[0] = (uint8_t)(i % 8); /* the forms of input that targets know, one by one */
        LLVMFuzzerTestOneInput(input, size);
    }
    printf("%ld inputs\n", count);
    return 0;
}
