/* launcher_shim_watch.h - a descriptor that becomes readable, on the loop.
 *
 * Loop thread only. Owns the descriptor. close is immediate for the caller: fn never runs again. */
#pragma once

struct uv_loop_s;
struct launcher_shim_watch;

/* Takes fd, also when it fails (NULL). */
struct launcher_shim_watch *launcher_shim_watch_create(struct uv_loop_s *uv, int fd,
                                                       void (*fn)(void *arg), void *arg);
int launcher_shim_watch_fd(const struct launcher_shim_watch *watch);
void launcher_shim_watch_close(struct launcher_shim_watch **place); /* NULL inside is fine */
