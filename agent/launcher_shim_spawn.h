/* launcher_shim_spawn.h - one process of the shim's program, with its two descriptors.
 *
 * Any thread; blocks as long as an exec does. */
#pragma once
#include <sys/types.h>

/* argv[0] is a name; the environment is empty, the session its own. fd3, fd4: what it finds there;
 * fd4 negative: nothing. Both above 9, close-on-exec, still the caller's. *pidfd: the caller's.
 * An errno. */
int launcher_shim_spawn(const char *shim_path, char *const *argv, int fd3, int fd4, pid_t *pid,
                        int *pidfd);
/* fd moved above the descriptors that a shim finds open, so that placing one never hits another.
 * Takes fd; -1 (errno) stays -1. */
int launcher_shim_spawn_raise(int fd);
