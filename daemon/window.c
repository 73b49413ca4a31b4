/* window.c - see window.h. */
#include "daemon/window.h"

#define WINDOW_MESSAGE_BYTES 1024
#define WINDOW_WORKER_BYTES  1024
#define WINDOW_STAGED_BYTES  8192
#define WINDOW_REPORT_BYTES  64
#define WINDOW_VALUE_BYTES   32

static bool window_is_full(const struct window *window, size_t part)
{
    return window->count >= WINDOW_ITEMS / part || window->bytes >= WINDOW_BYTES / part;
}

void window_add(struct window *window, struct rpc_call *call, uint64_t seq, size_t bytes)
{
    if (seq <= window->acked)
        return;
    if (window->count == WINDOW_ITEMS) { /* what was on its way when we paused: join the last one */
        size_t last = (window->first + window->count - 1) % WINDOW_ITEMS;
        window->items[last].bytes += bytes;
        window->items[last].seq = seq;
    } else {
        size_t place = (window->first + window->count++) % WINDOW_ITEMS;
        window->items[place].seq = seq;
        window->items[place].bytes = bytes;
    }
    window->bytes += bytes;
    if (!window->paused && window_is_full(window, 1)) {
        window->paused = true;
        rpc_call_pause(call);
    }
}

void window_ack(struct window *window, struct rpc_call *call, uint64_t seq)
{
    if (seq > window->acked)
        window->acked = seq;
    while (window->count > 0 && window->items[window->first].seq <= seq) {
        window->bytes -= window->items[window->first].bytes;
        window->first = (window->first + 1) % WINDOW_ITEMS;
        window->count--;
    }
    if (window->paused && !window_is_full(window, 2)) {
        window->paused = false;
        rpc_call_resume(call);
    }
}

size_t window_up_bytes(const Pb__AgentUp *up)
{
    const Pb__ActualReport *report = up->report;

    if (!report)
        return WINDOW_MESSAGE_BYTES;
    return WINDOW_MESSAGE_BYTES + report->n_workers * WINDOW_WORKER_BYTES +
           (report->n_staged + report->n_sealed + report->n_deleted) * WINDOW_STAGED_BYTES;
}

size_t window_bulk_bytes(const Pb__BulkUp *up)
{
    size_t bytes = WINDOW_MESSAGE_BYTES;

    for (size_t i = 0; i < up->n_batches; i++) {
        const Pb__ReportBatch *batch = up->batches[i];
        size_t names = batch->n_reports > 0 ? batch->reports[0]->n_names : 0;
        bytes += batch->n_reports * (WINDOW_REPORT_BYTES + names * WINDOW_VALUE_BYTES);
    }
    return bytes;
}
