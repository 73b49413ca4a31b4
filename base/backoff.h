/* backoff.h - how long to wait before a relaunch. Pure. */
#pragma once
#include <stdint.h>

/* `first` before the relaunch after the first failure, twice as long after each one more, `most` at
 * the longest. */
uint64_t backoff_ms(uint64_t first, uint64_t most, uint32_t failures);
