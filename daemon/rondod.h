/* rondod.h - the daemon put together: database, core, services, status endpoint, in this order, and
 * taken apart in the other.
 *
 * Blocks until it is told to stop (SIGTERM, SIGINT) or leadership is lost. Returns the exit code: 0
 * asked to stop, 1 it could not start (one line on stderr says why), 3 a newer term leads. */
#pragma once
#include "daemon/config.h"
#include <stdbool.h>

int rondod_run(const struct config *config, bool dev);
