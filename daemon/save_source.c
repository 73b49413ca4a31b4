/* save_source.c - see save_source.h. */
#include "daemon/save_source.h"
#include "base/log.h"
#include "daemon/attempt.h"
#include "daemon/job.h"
#include "daemon/node.h"
#include "daemon/save_copy.h"
#include "rpc/ticket.h"

_Static_assert(sizeof(((struct hub *)0)->ticket_root) == TICKET_KEY_BYTES, "one kind of key");

#define LIFE_US     1800000000 /* of a ticket */
#define RENEW_US    600000000
#define SOURCES_MAX 4096
#define PARTS_MAX   (TICKET_ENTRIES_MAX - 1) /* of one ticket; the manifest is an entry, too */

void save_source_key(const struct hub *hub, const char *node, unsigned char *out)
{
    ticket_key(hub->ticket_root, node, out);
}

bool save_source_is_needed(const Pb__Checkpoint *row, const char *node)
{
    for (size_t i = 0; i < row->n_parts; i++)
        if (!save_copy_is_on(row, i, node))
            return true;
    return false;
}

/* --- who has what */
struct gather {
    struct node *node; /* that needs the parts */
    const Pb__Checkpoint *row;
    Pb__DesiredFetch *fetch;
    struct arena *arena;
};

static Pb__FetchSource *source_obtain(struct gather *gather, const char *name)
{
    Pb__DesiredFetch *fetch = gather->fetch;

    for (size_t i = fetch->n_sources; i-- > 0;)
        if (!strcmp(fetch->sources[i]->node, name) && fetch->sources[i]->n_parts < PARTS_MAX)
            return fetch->sources[i];
    if (fetch->n_sources >= SOURCES_MAX)
        return NULL;
    Pb__FetchSource *source = arena_alloc(gather->arena, sizeof(*source));
    pb__fetch_source__init(source);
    source->node = arena_strdup(gather->arena, name);
    source->parts = arena_alloc(gather->arena, sizeof(void *) * PARTS_MAX);
    fetch->sources[fetch->n_sources++] = source;
    return source;
}

static void add_part(struct gather *gather, size_t part)
{
    const Pb__CheckpointPart *wanted = gather->row->parts[part];

    for (size_t i = 0; i < gather->row->n_copies; i++) {
        const Pb__ShardCopy *copy = gather->row->copies[i];
        if (!save_copy_is_of(copy, wanted) ||
            copy->durability != PB__SHARD_COPY__DURABILITY__NODE || copy->lost)
            continue;
        Pb__FetchSource *source = source_obtain(gather, copy->node);
        if (!source)
            return;
        Pb__FetchPart *out = arena_alloc(gather->arena, sizeof(*out));
        pb__fetch_part__init(out);
        out->role = wanted->role;
        out->has_rank = true;
        out->rank = wanted->rank;
        source->parts[source->n_parts++] = out;
    }
}

/* --- tickets */
static const char **entries_of(const Pb__FetchSource *source, struct arena *arena)
{
    const char **entries = arena_alloc(arena, sizeof(char *) * (source->n_parts + 1));
    char name[320];

    entries[0] = "manifest.json";
    for (size_t i = 0; i < source->n_parts; i++) {
        snprintf(name, sizeof(name), "%s-%u", source->parts[i]->role, source->parts[i]->rank);
        entries[i + 1] = arena_strdup(arena, name);
    }
    return entries;
}

static void sign(const struct gather *gather, const struct job *job, Pb__FetchSource *source)
{
    const struct hub *hub = gather->node->hub;
    unsigned char key[TICKET_KEY_BYTES];
    struct ticket ticket = {
        .job = (uint64_t)job->id,
        .attempt = attempt_view(job->attempt)->number,
        .expires_us = loop_wall_us(hub->loop) + LIFE_US,
        .audience = source->node,
        .bearer = node_view(gather->node)->name,
        .path = gather->row->path,
        .digest = gather->row->manifest_digest,
        .entries = entries_of(source, gather->arena),
        .entries_count = source->n_parts + 1,
    };
    struct text bytes;
    struct error err = {STATUS_OK, ""};

    text_init(&bytes, 0);
    save_source_key(hub, source->node, key);
    if (ticket_sign(&ticket, key, &bytes, &err) == STATUS_OK) {
        source->has_ticket = true;
        source->ticket.len = bytes.len;
        source->ticket.data = arena_alloc(gather->arena, bytes.len);
        memcpy(source->ticket.data, bytes.data, bytes.len);
    } else {
        log_error("ticket.sign", log_str("node", source->node), log_err(&err));
    }
    text_fini(&bytes);
}

static void reach(const struct gather *gather, const struct job *job, Pb__FetchSource *source)
{
    const struct node *from = map_get_text(gather->node->hub->nodes, source->node);

    if (!save_copy_serves(from))
        return; /* named all the same: people want to know where the bytes are */
    source->address = node_view(from)->inventory->address;
    source->has_port = true;
    source->port = node_view(from)->inventory->peer_port;
    sign(gather, job, source);
}

/* --- the desired set */
static const Pb__Checkpoint *wanted_by(const struct node *node, const struct job *job)
{
    const struct save *save = NULL;

    if (job_view(job)->state == PB__JOB__STATE__STARTING)
        save = map_get(node->hub->saves, (uint64_t)attempt_resume(attempt_view(job->attempt)));
    return save ? (const Pb__Checkpoint *)save->entry.row : NULL;
}

static void fill_one(struct node *node, const struct job *job, const Pb__Checkpoint *row,
                     Pb__Desired *out, struct arena *arena)
{
    Pb__DesiredFetch *fetch = arena_alloc(arena, sizeof(*fetch));
    struct gather gather = {node, row, fetch, arena};

    pb__desired_fetch__init(fetch);
    fetch->has_checkpoint = true;
    fetch->checkpoint = row->id;
    fetch->vault = row->vault;
    fetch->path = row->path;
    fetch->manifest_digest = row->manifest_digest;
    fetch->sources = arena_alloc(arena, sizeof(void *) * SOURCES_MAX);
    for (size_t i = 0; i < row->n_parts; i++)
        if (!save_copy_is_on(row, i, node_view(node)->name))
            add_part(&gather, i);
    for (size_t i = 0; i < fetch->n_sources; i++)
        reach(&gather, job, fetch->sources[i]);
    out->fetches[out->n_fetches++] = fetch;
}

static void renew_at(struct hub *hub, int64_t at_us)
{
    if (!hub->fetch_renew_us || at_us < hub->fetch_renew_us)
        hub->fetch_renew_us = at_us;
}

void save_source_fill(struct node *node, Pb__Desired *out, struct arena *arena)
{
    size_t at = 0;

    node->fetch_renew_us = 0;
    out->fetches = arena_alloc(arena, sizeof(void *) * (map_count(node->residents) + 1));
    for (struct job *job; (job = map_next(node->residents, &at));) {
        const Pb__Checkpoint *row = wanted_by(node, job);
        if (row && row->manifest_digest && save_source_is_needed(row, node_view(node)->name))
            fill_one(node, job, row, out, arena);
    }
    if (!out->n_fetches)
        return;
    node->fetch_renew_us = loop_now_us(node->hub->loop) + RENEW_US;
    renew_at(node->hub, node->fetch_renew_us);
}

/* Most of the time no node fetches: then there is nothing to look through. A node that is told anew
 * says its next time by save_source_fill. */
static void renew(struct hub *hub, int64_t until_us)
{
    size_t at = 0;

    if (!hub->fetch_renew_us || hub->fetch_renew_us > until_us)
        return;
    hub->fetch_renew_us = 0;
    for (struct node *node; (node = map_next(hub->nodes, &at));) {
        if (!node->fetch_renew_us)
            continue;
        if (node->fetch_renew_us <= until_us)
            node->desired_dirty = true;
        else
            renew_at(hub, node->fetch_renew_us);
    }
}

void save_source_served(struct hub *hub)
{
    renew(hub, INT64_MAX);
}

void save_source_tick(struct hub *hub)
{
    renew(hub, loop_now_us(hub->loop));
}

/* --- for people */
void save_source_explain(const struct hub *hub, const Pb__Checkpoint *row, char *out, size_t cap)
{
    for (size_t i = 0; i < row->n_parts; i++) {
        if (save_copy_source(hub, row, i))
            continue;
        const char *name = row->parts[i]->node;
        const struct node *node = map_get_text(hub->nodes, name);
        const Pb__Node *known = node ? (const Pb__Node *)node->entry.row : NULL;
        snprintf(out, cap,
                 "waits for %snode %.60s (%s), which alone has %.40s-%u of checkpoint %lld (step "
                 "%lld)",
                 node && node->link ? "room on " : "", name,
                 known ? HUB_NAME(node__seen, known->seen) : "unknown", row->parts[i]->role,
                 row->parts[i]->rank, (long long)row->id, (long long)row->step);
        return;
    }
    *out = '\0';
}
