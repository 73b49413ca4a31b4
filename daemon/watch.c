/* watch.c - events and their watchers. See watch.h. */
#include "daemon/watch.h"

struct core_watch {
    struct list node;
    void (*fn)(void *arg, const Pb__Event *const *events, size_t count);
    void *arg;
    bool removed;
};

void watch_begin(struct hub *hub)
{
    hub->event_mark = hub->event_next;
}

Pb__Event *watch_event(struct hub *hub, const char *kind)
{
    struct event *event = NEW(struct event);
    Pb__Event *row = NEW(Pb__Event);

    pb__event__init(row);
    row->has_seq = row->has_at_us = true;
    row->seq = hub->event_next++;
    row->at_us = loop_wall_us(hub->loop);
    row->kind = mem_strdup(kind);
    entry_init(&event->entry, CHANGE_EVENT, NULL, NULL);
    draft_add_take(&hub->drafts, &event->entry, &row->base);
    if (hub->fresh_count == hub->fresh_cap) {
        hub->fresh_cap = hub->fresh_cap ? hub->fresh_cap * 2 : 64;
        hub->fresh = mem_resize(hub->fresh, hub->fresh_cap, sizeof(*hub->fresh));
    }
    hub->fresh[hub->fresh_count++] = event;
    return row;
}

static void event_destroy(struct event *event)
{
    if (!event)
        return;
    entry_fini(&event->entry);
    mem_free(event);
}

static void ring_add_take(struct hub *hub, struct event *event_take)
{
    if (hub->events_count == HUB_EVENTS_MAX) {
        event_destroy(hub->events[hub->events_first]);
        hub->events_first = (hub->events_first + 1) % HUB_EVENTS_MAX;
        hub->events_count--;
    }
    hub->events[(hub->events_first + hub->events_count++) % HUB_EVENTS_MAX] = event_take;
}

static void tell(struct hub *hub)
{
    const Pb__Event **rows = mem_array(hub->fresh_count, sizeof(*rows));
    size_t count = hub->fresh_count;

    for (size_t i = 0; i < count; i++)
        rows[i] = (const Pb__Event *)hub->fresh[i]->entry.row;
    LIST_EACH(&hub->watches, item)
    {
        struct core_watch *watch = LIST_ITEM(item, struct core_watch, node);
        if (!watch->removed)
            watch->fn(watch->arg, rows, count);
    }
    LIST_EACH(&hub->watches, item)
    {
        struct core_watch *watch = LIST_ITEM(item, struct core_watch, node);
        if (watch->removed) {
            list_remove(&watch->node);
            mem_free(watch);
        }
    }
    mem_free(rows);
}

void watch_settle(struct hub *hub, bool committed)
{
    if (!committed) {
        for (size_t i = 0; i < hub->fresh_count; i++)
            event_destroy(hub->fresh[i]);
        hub->fresh_count = 0;
        hub->event_next = hub->event_mark;
        return;
    }
    if (!hub->fresh_count)
        return;
    hub->health.events_made += hub->fresh_count;
    for (size_t i = 0; i < hub->fresh_count; i++) /* a turn makes far fewer than the ring holds */
        ring_add_take(hub, hub->fresh[i]);
    hub->watch_telling = true;
    tell(hub);
    hub->watch_telling = false;
    hub->fresh_count = 0;
}

void watch_load_take(struct hub *hub, Pb__Event *event_take)
{
    struct event *event = NEW(struct event);

    entry_init(&event->entry, CHANGE_EVENT, NULL, NULL);
    event->entry.row = &event_take->base;
    if (event_take->seq >= hub->event_next)
        hub->event_next = event_take->seq + 1;
    ring_add_take(hub, event);
}

void watch_fini(struct hub *hub)
{
    for (struct list *item; (item = list_take_first(&hub->watches));)
        mem_free(LIST_ITEM(item, struct core_watch, node));
    for (size_t i = 0; i < hub->events_count; i++)
        event_destroy(hub->events[(hub->events_first + i) % HUB_EVENTS_MAX]);
    mem_free(hub->events);
    mem_free(hub->fresh);
}

struct core_watch *
core_watch_add(struct core *core,
               void (*fn)(void *arg, const Pb__Event *const *events, size_t count), void *arg)
{
    struct hub *hub = (struct hub *)core;
    struct core_watch *watch = NEW(struct core_watch);

    watch->fn = fn;
    watch->arg = arg;
    list_add_last(&hub->watches, &watch->node);
    return watch;
}

void core_watch_remove(struct core *core, struct core_watch *watch)
{
    struct hub *hub = (struct hub *)core;

    if (!watch)
        return;
    if (hub->watch_telling) { /* freed by tell */
        watch->removed = true;
        return;
    }
    list_remove(&watch->node);
    mem_free(watch);
}

size_t core_events(const struct core *core, int64_t after, const Pb__Event **out, size_t max,
                   int64_t *oldest)
{
    const struct hub *hub = (const struct hub *)core;
    size_t low = 0, high = hub->events_count, count = 0;

    while (low < high) { /* first with seq > after */
        size_t middle = (low + high) / 2;
        const struct event *event = hub->events[(hub->events_first + middle) % HUB_EVENTS_MAX];
        if (((const Pb__Event *)event->entry.row)->seq > after)
            high = middle;
        else
            low = middle + 1;
    }
    if (oldest)
        *oldest = hub->events_count
                      ? ((const Pb__Event *)hub->events[hub->events_first]->entry.row)->seq
                      : hub->event_next;
    for (; low < hub->events_count && count < max; low++)
        out[count++] =
            (const Pb__Event *)hub->events[(hub->events_first + low) % HUB_EVENTS_MAX]->entry.row;
    return count;
}
