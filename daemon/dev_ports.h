/* dev_ports.h - slices of this machine's ports, one an agent of `rondod dev`, so that two clusters
 * of one machine do not use the same ones.
 *
 * At start, blocking for no longer than a bind. A slice is leased by a bound socket with a name of
 * its own in the abstract namespace of Unix sockets: which is the network's own namespace, as the
 * ports are, holds over users, leaves no file, and ends with the process. */
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

#define DEV_PORTS_FIRST  20000u /* below where kernels take ports for connections: 32768 */
#define DEV_PORTS_EACH   150u
#define DEV_PORTS_SLICES 85u

struct dev_ports {
    uint32_t first, last;
    int lease; /* -1: shared, all slices are taken */
};
/* The slice that begins at `wanted`, if it is free, else the first free one from the one with the
 * number `index` on. STATUS_EXHAUSTED: none is free; *out is the one wanted, without a lease. */
enum status dev_ports_take(uint32_t wanted, uint32_t index, struct dev_ports *out) MUST_CHECK;
void dev_ports_release(struct dev_ports *ports);
