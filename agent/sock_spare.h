/* sock_spare.h - sockets bound in advance: a worker's is one of them, renamed.
 *
 * Loop thread only. They lie in a directory of the agent's own; what an earlier agent left there is
 * removed. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct sock_spares;

struct sock_spares *sock_spares_create(struct loop *loop, const char *dir, uint32_t count);
/* Frees itself once the pool is done with it; sockets that were not taken are closed. */
void sock_spares_destroy(struct sock_spares *spares);
/* The path (the caller's to free) and the descriptor of a bound socket, the caller's to rename and
 * close. NULL: none is ready. */
char *sock_spares_take(struct sock_spares *spares, int *fd);
uint32_t sock_spares_ready(const struct sock_spares *spares);
