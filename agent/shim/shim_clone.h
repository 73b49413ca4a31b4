/* shim_clone.h - a child that borrows the shim's memory until it executes a program.
 *
 * One thread. Copying even a tiny process costs more than all else a shim does, so the child runs
 * on a stack of its own in the parent's memory while the parent sleeps, as after vfork. */
#pragma once
#include <sys/types.h>

/* The child calls fn(arg), which must exec or _exit. Returns when it has done so: its pid, or a
 * negative errno. It is born inside the v2 cgroup of that directory where the kernel allows it;
 * empty: none. */
pid_t shim_clone(const char *cgroup2, void (*fn)(void *arg), void *arg);
void shim_clone_warm(void); /* takes the pages of that stack's busy end now */
