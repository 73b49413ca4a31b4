/* backoff.c - see backoff.h. */
#include "base/backoff.h"

uint64_t backoff_ms(uint64_t first, uint64_t most, uint32_t failures)
{
    uint64_t ms = first;

    for (uint32_t i = 1; i < failures && ms && ms < most; i++)
        ms = ms > UINT64_MAX / 2 ? most : ms * 2;
    return ms < most ? ms : most;
}
