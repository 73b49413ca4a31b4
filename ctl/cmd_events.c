/* cmd_events.c - what happened, and what happens now. Loop thread.
 *
 * Following goes on over restarts of the daemon: the resume token is the last seq printed. */
#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/event_line.h"
#include "ctl/job_arg.h"
#include "ctl/output.h"
#include "ctl/term.h"
#include "proto/text/text_format.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct config {
    struct connect_flags connect;
    char *node;
    int64_t after;
    uint32_t limit;
    bool follow;
};
#define AT(member) offsetof(struct config, member)

static const struct option rows[] = {
    CONNECT_ROWS,
    {"follow", OPT_BOOL, AT(follow), "false", 0, 0, "Go on with new events."},
    {"node", OPT_TEXT, AT(node), NULL, 0, 253, "Only events of this node."},
    {"after", OPT_I64, AT(after), "0", -1, INT64_MAX,
     "Begin behind this event's seq; -1: with the first kept; 0: the newest, or with -f from now."},
    {"limit", OPT_U32, AT(limit), "50", 1, 5000, "At most this many."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

struct listing {
    const struct config *config;
    struct connect *connect;
    enum output_format format;
    int64_t job, seq;
    bool moved, broken;
};

static void put_event(struct listing *listing, const Pb__Event *event)
{
    struct event_line_options options = {.with_job = listing->job == 0,
                                         .colour = term_has_colour(STDOUT_FILENO)};
    struct text out;
    if (*listing->config->node && (!event->node || strcmp(event->node, listing->config->node) != 0))
        return;
    text_init(&out, 0);
    if (listing->format == OUTPUT_TABLE) {
        event_line(event, &options, &out);
    } else { /* one line an event, so that a stream can be read */
        text_format_json(&event->base, TEXT_FORMAT_COMPACT, &out);
        text_add(&out, "\n");
    }
    fputs(text_get(&out), stdout);
    listing->broken = fflush(stdout) != 0;
    text_fini(&out);
}

static bool take_event(void *arg, const ProtobufCMessage *message)
{
    struct listing *listing = arg;
    const Pb__WatchReply *reply = (const Pb__WatchReply *)message;
    listing->moved = true;
    if (reply->event && reply->event->seq > listing->seq) {
        listing->seq = reply->event->seq;
        put_event(listing, reply->event);
    }
    return !listing->broken;
}

/* For ever, over restarts of the daemon: the token is the last seq seen. */
static int follow(struct listing *listing)
{
    int64_t end = connect_now_ms(listing->connect) + connect_timeout_ms(listing->connect);
    for (unsigned tries = 0;; tries++) {
        Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;
        struct error err = {0};
        request.has_after_seq = 1;
        request.after_seq = listing->seq;
        request.has_job = listing->job != 0;
        request.job = listing->job;
        bool begun = listing->moved;
        listing->moved = false;
        enum status st =
            connect_stream(listing->connect, "Watch", &request.base, take_event, listing, &err);
        if (listing->broken)
            return VERB_BROKEN;
        if (listing->moved)
            tries = 0;
        listing->moved = listing->moved || begun;
        bool away = connect_may_retry(st) || st == STATUS_OK || st == STATUS_CANCELLED;
        if (!away || (!listing->moved && connect_now_ms(listing->connect) >= end))
            return connect_fail(listing->connect, st, err.text);
        connect_say_waiting(listing->connect, err.text);
        connect_pause(tries);
    }
}

/* Is there such a node? If not, says so. */
static int check_node(struct connect *connect, const char *name)
{
    Pb__ListNodesRequest request = PB__LIST_NODES_REQUEST__INIT;
    Pb__ListNodesReply *reply;
    int code = connect_ask(connect, "ListNodes", &request.base, (ProtobufCMessage **)&reply);
    if (code != VERB_OK)
        return code;
    const char **names = mem_array(reply->n_nodes + 1, sizeof(*names));
    bool there = false;
    for (size_t i = 0; i < reply->n_nodes; i++) {
        const Pb__Node *node = reply->nodes[i]->node;
        names[i] = node && node->name ? node->name : "";
        there = there || strcmp(names[i], name) == 0;
    }
    const char *near = text_nearest(name, names, reply->n_nodes);
    if (!there)
        output_error("no node '%s'%s%s%s", name,
                     near ? "; did you mean '" : " (see `rondoctl nodes`)", near ? near : "",
                     near ? "'?" : "");
    mem_free(names);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return there ? VERB_OK : VERB_REFUSED;
}

static int list(struct listing *listing)
{
    Pb__ListEventsRequest request = PB__LIST_EVENTS_REQUEST__INIT;
    Pb__ListEventsReply *reply;
    request.has_job = listing->job != 0;
    request.job = listing->job;
    request.has_after_seq = listing->config->after != 0;
    request.after_seq = listing->config->after;
    request.has_limit = 1;
    request.limit = listing->config->limit;
    request.node = *listing->config->node ? listing->config->node : NULL;
    int code =
        connect_ask(listing->connect, "ListEvents", &request.base, (ProtobufCMessage **)&reply);
    if (code != VERB_OK)
        return code;
    if (listing->format != OUTPUT_TABLE)
        output_message(listing->format, &reply->base);
    else
        for (size_t i = 0; i < reply->n_events; i++)
            put_event(listing, reply->events[i]);
    if (reply->n_events == 0 && listing->job != 0)
        code = job_arg_check(listing->connect, listing->job);
    if (reply->n_events == 0 && code == VERB_OK && *listing->config->node)
        code = check_node(listing->connect, listing->config->node);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return code;
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    struct listing listing = {.config = config, .seq = config->after};
    int code = VERB_USAGE;
    if (!output_parse(config->connect.output, &listing.format))
        return VERB_USAGE;
    listing.connect = connect_open(&config->connect, &code);
    if (!listing.connect)
        return code;
    code = argc > 0 ? job_arg_find(listing.connect, argv[0], true, &listing.job) : VERB_OK;
    if (code == VERB_OK && config->follow && *config->node)
        code = check_node(listing.connect, config->node);
    if (code == VERB_OK)
        code = config->follow ? follow(&listing) : list(&listing);
    connect_close(listing.connect);
    return code;
}

const struct verb cmd_events = {.name = "events",
                                .args = "[JOB]",
                                .summary = "What happened, to one job or to all, oldest first.",
                                .examples = "  rondoctl events -f\n"
                                            "  rondoctl events 7\n"
                                            "  rondoctl events --node node-2 --after -1\n"
                                            "  rondoctl events -f -o json | jq .\n",
                                .rows = rows,
                                .config_size = sizeof(struct config),
                                .operands_min = 0,
                                .operands_max = 1,
                                .run = run};
