/* shim_floor.h - the floor of job throughput: bare rondo-shim + /bin/true, nothing else.
 *
 * One thread, blocking. Directories and requests are made before the clock starts. */
#pragma once
#include "tests/bench/stand.h"

/* Starts `count` shims, `at_once` of them alive at a time; all have ended when it returns. */
enum status shim_floor_run(const struct stand *stand, unsigned count, unsigned at_once,
                           double *per_s, struct error *err) MUST_CHECK;
