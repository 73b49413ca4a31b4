/* window.h - how much of a stream was taken in and is not yet acknowledged; past the bound the
 * stream is not read.
 *
 * Loop thread. Embedded in its owner; starts zeroed. Messages without a number are not counted:
 * they leave nothing behind. Sizes are estimates, cheap to make. */
#pragma once
#include "proto/pb.h"
#include "rpc/server.h"

#define WINDOW_ITEMS 256
#define WINDOW_BYTES ((size_t)16 << 20)

struct window {
    struct {
        uint64_t seq;
        size_t bytes;
    } items[WINDOW_ITEMS];
    size_t first, count, bytes;
    uint64_t acked;
    bool paused;
};
void window_add(struct window *window, struct rpc_call *call, uint64_t seq, size_t bytes);
void window_ack(struct window *window, struct rpc_call *call, uint64_t seq);
size_t window_up_bytes(const Pb__AgentUp *up);
size_t window_bulk_bytes(const Pb__BulkUp *up);
