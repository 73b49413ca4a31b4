/* mem_die.h - what happens when there is no memory: the one way out of mem.h that does not return.
 *
 * Any thread. Programs of Rondo abort (mem_die.c). librondo, which lives in other people's
 * programs, has another definition: it jumps to the edge of its API (worker/edge.h). */
#pragma once
#include <stddef.h>

_Noreturn void mem_die(const char *why, size_t size);
