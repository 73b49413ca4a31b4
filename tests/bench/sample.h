/* sample.h - measured values: median, other quantiles, the smallest. One thread. */
#pragma once
#include <stddef.h>

struct sample {
    double *values;
    size_t count, cap;
};

void sample_add(struct sample *sample, double value);
/* q in 0..1; nearest rank, as a value that was measured. 0 when there is none. Sorts. */
double sample_quantile(struct sample *sample, double q);
void sample_fini(struct sample *sample);
