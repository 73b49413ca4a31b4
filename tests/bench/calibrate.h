/* calibrate.h - what this machine does at this moment: without it no figure means anything.
 *
 * One thread, blocking, under a second each. */
#pragma once
#include "tests/bench/bench.h"

/* Notes calibrate.fdatasync_per_s (8 KiB writes in dir), calibrate.spawn_per_s (/bin/true, one
 * after the other) and calibrate.load (runnable tasks, of the last minute). */
enum status calibrate(const struct bench *bench, struct error *err) MUST_CHECK;
