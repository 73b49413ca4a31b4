/* stock.c - see stock.h. */
#include "agent/stock.h"
#include "base/mem.h"

#define STOCK_QUIET_US 50000 /* since the last take: making more must not compete with its user */

struct stock {
    struct loop_timer *timer;
    void (*make)(void *arg);
    void *arg;
    uint32_t wanted, ready;
    bool begun, making;
};

static void stock_tick(void *arg)
{
    struct stock *stock = arg;
    if (stock->making || !stock->begun || stock->ready >= stock->wanted)
        return;
    stock->making = true;
    stock->make(stock->arg);
}

struct stock *stock_create(struct loop *loop, uint32_t wanted, void (*make)(void *arg), void *arg)
{
    struct stock *stock = NEW(struct stock);
    stock->make = make;
    stock->arg = arg;
    stock->wanted = wanted;
    stock->timer = loop_timer_create(loop, stock_tick, stock);
    return stock;
}

void stock_destroy(struct stock *stock)
{
    if (!stock)
        return;
    loop_timer_destroy(stock->timer);
    mem_free(stock);
}

void stock_begin(struct stock *stock)
{
    stock->begun = true;
    loop_timer_set(stock->timer, 0);
}

void stock_end(struct stock *stock)
{
    stock->begun = false;
    loop_timer_stop(stock->timer);
}

void stock_made(struct stock *stock, bool good)
{
    stock->making = false;
    stock->ready += good;
    if (good && stock->begun && stock->ready < stock->wanted)
        loop_timer_set(stock->timer, 0);
}

bool stock_take(struct stock *stock)
{
    if (stock->begun)
        loop_timer_set(stock->timer, STOCK_QUIET_US);
    if (stock->ready == 0)
        return false;
    stock->ready--;
    return true;
}

uint32_t stock_ready(const struct stock *stock)
{
    return stock->ready;
}

bool stock_is_making(const struct stock *stock)
{
    return stock->making;
}
