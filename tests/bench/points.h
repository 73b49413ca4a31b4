/* points.h - what the worker of entry `metrics` reports, and its rival copies. */
#pragma once
#include <stdint.h>

#define POINTS_A_REPORT 64

/* No two neighbours alike, nothing that a store could guess. */
static inline double points_value(int64_t step, int series)
{
    return (double)((step * 64 + series) * 2654435761 % 1000003) / 1000.0;
}
