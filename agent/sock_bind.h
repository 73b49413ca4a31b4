/* sock_bind.h - a unix socket's name on the disk. Any thread; blocks. */
#pragma once

/* A socket bound to path (a stale one is replaced), mode 0600, non-blocking, not yet listening. Its
 * name may be longer than a socket's address holds. -1: errno. */
int sock_bind(const char *path);
