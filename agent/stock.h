/* stock.h - how many of a thing lie ready, and when more are made: while nobody takes any.
 *
 * Loop thread only. The things are the owner's; this counts them and asks for one more at a time.
 */
#pragma once
#include "base/loop.h"
#include <stdbool.h>
#include <stdint.h>

struct stock;

/* make(arg): begins to make one; stock_made ends it, at once or later. Nothing is made before
 * stock_begin. */
struct stock *stock_create(struct loop *loop, uint32_t wanted, void (*make)(void *arg), void *arg);
void stock_destroy(struct stock *stock); /* NULL is fine */
void stock_begin(struct stock *stock);
void stock_end(struct stock *stock); /* no more are made; what is ready can be taken */
/* good: one more is ready, and the next is made if it is wanted. Else the making rests until
 * something is taken: what failed once (a full disk, say) is not tried in a loop. */
void stock_made(struct stock *stock, bool good);
bool stock_take(struct stock *stock); /* false: none is ready, the caller does without */
uint32_t stock_ready(const struct stock *stock);
bool stock_is_making(const struct stock *stock);
