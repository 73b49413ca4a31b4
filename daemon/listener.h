/* listener.h - a listening TCP socket from "host:port" text.
 *
 * Any thread. Numeric addresses and "localhost" only: name lookup blocks. */
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

/* Splits "127.0.0.1:7412" or "[::1]:7412"; the port may be 0. host holds at least 64 bytes. */
enum status listener_parse(const char *address, char *host, size_t cap, uint16_t *port,
                           struct error *err) MUST_CHECK;
bool listener_is_loopback(const char *address);
/* *fd is non-blocking and close-on-exec; *port is the real one. */
enum status listener_open(const char *address, int *fd, uint16_t *port,
                          struct error *err) MUST_CHECK;
