/* sample.c - see sample.h. */
#include "tests/bench/sample.h"
#include "base/mem.h"
#include <stdlib.h>

void sample_add(struct sample *sample, double value)
{
    if (sample->count == sample->cap) {
        sample->cap = sample->cap ? sample->cap * 2 : 64;
        sample->values = mem_resize(sample->values, sample->cap, sizeof(double));
    }
    sample->values[sample->count++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double sample_quantile(struct sample *sample, double q)
{
    if (sample->count == 0)
        return 0;
    qsort(sample->values, sample->count, sizeof(double), compare);
    return sample->values[(size_t)(q * (double)(sample->count - 1) + 0.5)];
}

void sample_fini(struct sample *sample)
{
    mem_free(sample->values);
    *sample = (struct sample){0};
}
