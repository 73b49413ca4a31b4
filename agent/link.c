/* link.c - see link.h.
 *
 * Control: DOWN -(timer)-> OPENING (hello is sent) -(welcome)-> UP -(closed)-> DOWN. Bulk the same,
 * opened at the welcome. */
#include "agent/link.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RETRY_US_MIN     200000
#define RETRY_US_MAX     2000000
#define REFUSED_RETRY_US 5000000
#define OPEN_US_MAX      15000000
#define HELD_MAX         64
#define PROTOCOL         1u

enum stream_state { STREAM_DOWN, STREAM_OPENING, STREAM_UP };
struct held { /* a message under a term that is not on disk yet */
    struct list node;
    Pb__AgentDown *message;
};
struct link {
    struct link_options options;
    char *node, *boot_id, *spool_id, *instance, *term_path;
    enum stream_state control, bulk;
    uint64_t term;         /* highest seen */
    uint64_t term_durable; /* highest on disk */
    bool term_writing;
    struct list held;
    size_t held_count;
    uint64_t seq, lease_ms, heartbeat_ms;
    int64_t heard_us, retry_us;
    int64_t unacked_us; /* a report waits for its acknowledgement since; 0: none does */
    struct loop_timer *retry, *beat, *bulk_retry;
};

static void link_retry(void *arg);
static void link_beat(void *arg);
static void link_bulk_retry(void *arg);
static const struct uplink_events link_uplink_events;

struct link *link_create(const struct link_options *options)
{
    struct link *link = NEW(struct link);
    link->options = *options;
    link->node = mem_strdup(options->node);
    link->boot_id = mem_strdup(options->boot_id);
    link->spool_id = mem_strdup(options->spool_id);
    link->instance = mem_strdup(options->instance);
    link->term_path = mem_strdup(options->term_path);
    link->term = link->term_durable = options->term;
    link->lease_ms = 15000;
    link->heartbeat_ms = 1000;
    link->retry_us = RETRY_US_MIN;
    list_init(&link->held);
    link->retry = loop_timer_create(options->loop, link_retry, link);
    link->beat = loop_timer_create(options->loop, link_beat, link);
    link->bulk_retry = loop_timer_create(options->loop, link_bulk_retry, link);
    link->heard_us = loop_now_us(options->loop);
    options->uplink->ops->listen(options->uplink, &link_uplink_events, link);
    return link;
}

static void drop_held(struct link *link)
{
    LIST_EACH(&link->held, node)
    {
        struct held *held = LIST_ITEM(node, struct held, node);
        list_remove(node);
        protobuf_c_message_free_unpacked(&held->message->base, NULL);
        mem_free(held);
    }
    link->held_count = 0;
}

void link_destroy(struct link *link)
{
    if (!link)
        return;
    drop_held(link);
    loop_timer_destroy(link->retry);
    loop_timer_destroy(link->beat);
    loop_timer_destroy(link->bulk_retry);
    mem_free(link->node);
    mem_free(link->boot_id);
    mem_free(link->spool_id);
    mem_free(link->instance);
    mem_free(link->term_path);
    mem_free(link);
}

void link_start(struct link *link)
{
    loop_timer_set(link->retry, 0);
}

bool link_is_up(const struct link *link)
{
    return link->control == STREAM_UP;
}

int64_t link_silent_us(const struct link *link)
{
    return link->control == STREAM_UP ? 0 : loop_now_us(link->options.loop) - link->heard_us;
}

int64_t link_leaderless_us(const struct link *link)
{
    int64_t now = loop_now_us(link->options.loop);

    if (link->control != STREAM_UP)
        return now - link->heard_us;
    return link->unacked_us ? now - link->unacked_us : 0;
}

uint64_t link_lease_ms(const struct link *link)
{
    return link->lease_ms;
}

uint64_t link_term(const struct link *link)
{
    return link->term_durable;
}

/* --- opening */

static void send_hello(struct link *link)
{
    Pb__AgentUp up = PB__AGENT_UP__INIT;
    Pb__Hello hello = PB__HELLO__INIT;
    hello.has_protocol = true;
    hello.protocol = PROTOCOL;
    hello.node = link->node;
    hello.boot_id = link->boot_id;
    hello.spool_id = link->spool_id;
    hello.instance = link->instance;
    hello.has_term_seen = true;
    hello.term_seen = link->term;
    hello.inventory =
        (Pb__NodeInventory *)(uintptr_t)link->options.events->inventory(link->options.arg);
    up.has_term = true;
    up.term = link->term;
    up.hello = &hello;
    (void)link->options.uplink->ops->control(link->options.uplink, &up);
}

static void link_retry(void *arg)
{
    struct link *link = arg;
    struct uplink *uplink = link->options.uplink;
    if (link->control == STREAM_OPENING) { /* no welcome in time */
        uplink->ops->close(uplink, UPLINK_CONTROL);
        return;
    }
    if (link->control != STREAM_DOWN)
        return;
    link->control = STREAM_OPENING;
    uplink->ops->open(uplink, UPLINK_CONTROL);
    send_hello(link);
    loop_timer_set(link->retry, OPEN_US_MAX);
}

/* Agents that lost the same daemon do not come back in step. */
static void retry_later(struct link *link, int64_t least_us)
{
    uint32_t chance = 0;
    loop_random(link->options.loop, &chance, sizeof(chance));
    int64_t delay = link->retry_us > least_us ? link->retry_us : least_us;
    loop_timer_set(link->retry, delay / 2 + (int64_t)(chance % (uint32_t)(delay / 2 + 1)));
    link->retry_us = link->retry_us * 2 > RETRY_US_MAX ? RETRY_US_MAX : link->retry_us * 2;
}

static void link_bulk_retry(void *arg)
{
    struct link *link = arg;
    struct uplink *uplink = link->options.uplink;
    if (link->control != STREAM_UP || link->bulk != STREAM_DOWN)
        return;
    Pb__BulkUp up = PB__BULK_UP__INIT;
    Pb__BulkHello hello = PB__BULK_HELLO__INIT;
    hello.has_protocol = true;
    hello.protocol = PROTOCOL;
    hello.node = link->node;
    hello.spool_id = link->spool_id;
    hello.instance = link->instance;
    up.hello = &hello;
    link->bulk = STREAM_OPENING;
    uplink->ops->open(uplink, UPLINK_BULK);
    (void)uplink->ops->bulk(uplink, &up);
}

static void link_beat(void *arg)
{
    struct link *link = arg;
    if (link->control != STREAM_UP)
        return;
    Pb__AgentUp up = PB__AGENT_UP__INIT;
    Pb__Heartbeat heartbeat = PB__HEARTBEAT__INIT;
    heartbeat.has_mono_us = true;
    heartbeat.mono_us = loop_now_us(link->options.loop);
    link->options.events->heartbeat(link->options.arg, &heartbeat);
    up.has_term = true;
    up.term = link->term_durable;
    up.heartbeat = &heartbeat;
    (void)link->options.uplink->ops->control(link->options.uplink, &up);
    loop_timer_set(link->beat, (int64_t)link->heartbeat_ms * 1000);
}

/* --- what comes down */

static void take_welcome(struct link *link, const Pb__Welcome *welcome)
{
    if (welcome->lease_ms)
        link->lease_ms = welcome->lease_ms;
    if (welcome->heartbeat_ms)
        link->heartbeat_ms = welcome->heartbeat_ms;
    if (welcome->control_seq > link->seq)
        link->seq = welcome->control_seq;
    link->control = STREAM_UP;
    link->unacked_us = 0;
    link->retry_us = RETRY_US_MIN;
    loop_timer_stop(link->retry);
    loop_timer_set(link->beat, (int64_t)link->heartbeat_ms * 1000);
    log_info("link.up", log_int("term", (int64_t)link->term_durable),
             log_int("lease_ms", (int64_t)link->lease_ms));
    link->options.events->welcome(link->options.arg, welcome);
    link_bulk_retry(link);
}

static void obey(struct link *link, const Pb__AgentDown *message)
{
    const struct link_events *events = link->options.events;
    if (message->term < link->term) { /* a newer one came while this one waited */
        log_warn("link.old_term", log_int("term", (int64_t)message->term));
        return;
    }
    if (message->refused && *message->refused) {
        log_error("link.refused", log_str("why", message->refused));
        link->retry_us = REFUSED_RETRY_US;
        link->options.uplink->ops->close(link->options.uplink, UPLINK_CONTROL);
        return;
    }
    if (message->welcome && link->control == STREAM_OPENING)
        take_welcome(link, message->welcome);
    if (link->control != STREAM_UP)
        return;
    if (message->has_ack_seq)
        link->unacked_us = message->ack_seq >= link->seq ? 0 : loop_now_us(link->options.loop);
    if (message->has_ack_seq)
        events->acked(link->options.arg, message->ack_seq);
    if (message->desired)
        events->desired(link->options.arg, message->desired);
}

static void write_term(struct link *link);

static void obey_held(struct link *link)
{
    while (!list_is_empty(&link->held) && link->term_durable >= link->term) {
        struct held *held = LIST_ITEM(list_take_first(&link->held), struct held, node);
        link->held_count--;
        obey(link, held->message);
        protobuf_c_message_free_unpacked(&held->message->base, NULL);
        mem_free(held);
    }
}

static void link_term_written(void *arg, enum status st, const struct error *err,
                              struct files_batch *batch)
{
    struct link *link = arg;
    const struct files_step *step = &batch->steps[0];
    uint64_t term = 0;
    link->term_writing = false;
    if (st != STATUS_OK) { /* not obeyed: the stream ends, its successor tries again */
        log_error("link.term", log_err(err));
        drop_held(link);
        link->options.uplink->ops->close(link->options.uplink, UPLINK_CONTROL);
        return;
    }
    if (text_to_u64(step->bytes, 0, UINT64_MAX, &term) && term > link->term_durable)
        link->term_durable = term;
    if (link->term_durable < link->term)
        write_term(link);
    else
        obey_held(link);
}

static void write_term(struct link *link)
{
    char text[24];
    if (link->term_writing)
        return;
    (void)snprintf(text, sizeof(text), "%" PRIu64, link->term);
    struct files_batch *batch = files_batch_create();
    files_write(batch, link->term_path, text, strlen(text) + 1, 0600)->sync = true;
    link->term_writing = true;
    files_run(link->options.files, batch, link_term_written, link);
}

static void hold(struct link *link, const Pb__AgentDown *message)
{
    if (link->held_count >= HELD_MAX) {
        drop_held(link);
        link->options.uplink->ops->close(link->options.uplink, UPLINK_CONTROL);
        return;
    }
    struct held *held = NEW(struct held);
    held->message = (Pb__AgentDown *)message_copy(&message->base);
    list_add_last(&link->held, &held->node);
    link->held_count++;
}

static void link_control(void *arg, const Pb__AgentDown *message)
{
    struct link *link = arg;
    link->heard_us = loop_now_us(link->options.loop);
    if (message->term < link->term) {
        log_warn("link.old_term", log_int("term", (int64_t)message->term),
                 log_int("seen", (int64_t)link->term));
        link->options.uplink->ops->close(link->options.uplink, UPLINK_CONTROL);
        return;
    }
    link->term = message->term;
    if (link->term > link->term_durable || !list_is_empty(&link->held)) {
        hold(link, message);
        write_term(link);
        return;
    }
    obey(link, message);
}

static void link_bulk_message(void *arg, const Pb__BulkDown *message)
{
    struct link *link = arg;
    const struct link_events *events = link->options.events;
    if (message->has_term && message->term < link->term)
        return;
    if (message->refused && *message->refused) {
        log_error("link.bulk_refused", log_str("why", message->refused));
        link->options.uplink->ops->close(link->options.uplink, UPLINK_BULK);
        return;
    }
    if (link->bulk == STREAM_OPENING && message->has_ack_seq) {
        link->bulk = STREAM_UP;
        events->bulk_up(link->options.arg, message->ack_seq);
        return;
    }
    if (link->bulk == STREAM_UP)
        events->bulk(link->options.arg, message);
}

static void link_closed(void *arg, enum uplink_stream stream, enum status st, const char *text)
{
    struct link *link = arg;
    struct uplink *uplink = link->options.uplink;
    bool was_up = (stream == UPLINK_CONTROL ? link->control : link->bulk) == STREAM_UP;
    if (was_up)
        log_warn("link.closed", log_str("stream", stream == UPLINK_CONTROL ? "control" : "bulk"),
                 log_str("st", status_name(st)), log_str("err", text ? text : ""));
    if (stream == UPLINK_BULK) {
        link->bulk = STREAM_DOWN;
        link->options.events->bulk_down(link->options.arg);
        loop_timer_set(link->bulk_retry, RETRY_US_MIN);
        return;
    }
    link->control = STREAM_DOWN;
    if (was_up)
        link->heard_us = loop_now_us(link->options.loop);
    drop_held(link);
    loop_timer_stop(link->beat);
    if (link->bulk != STREAM_DOWN)
        uplink->ops->close(uplink, UPLINK_BULK);
    if (was_up)
        link->options.events->down(link->options.arg);
    retry_later(link, 0);
}

static void link_drained(void *arg, enum uplink_stream stream)
{
    struct link *link = arg;
    if (stream == UPLINK_BULK && link->bulk == STREAM_UP)
        link->options.events->bulk_drained(link->options.arg);
}

static const struct uplink_events link_uplink_events = {link_control, link_bulk_message,
                                                        link_closed, link_drained};

/* --- what goes up */

uint64_t link_report(struct link *link, Pb__ActualReport *report)
{
    if (link->control != STREAM_UP)
        return 0;
    Pb__AgentUp up = PB__AGENT_UP__INIT;
    up.has_seq = true;
    up.seq = ++link->seq;
    up.has_term = true;
    up.term = link->term_durable;
    up.report = report;
    if (!link->unacked_us)
        link->unacked_us = loop_now_us(link->options.loop);
    (void)link->options.uplink->ops->control(link->options.uplink, &up);
    return up.seq;
}

size_t link_bulk(struct link *link, const Pb__BulkUp *message)
{
    if (link->bulk != STREAM_UP)
        return SIZE_MAX;
    return link->options.uplink->ops->bulk(link->options.uplink, message);
}
