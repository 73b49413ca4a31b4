/* uplink.h - the seam to the daemon: two streams and the fetching of code.
 *
 * Two implementations: link_rpc.c (gRPC) and the simulator's. Loop thread only. Events come later,
 * never from inside a call. A message is what its packed form says: a BulkUp carries its batches as
 * raw fields (already encoded), so a receiver in the same process packs and unpacks. At most one
 * stream of a kind is open; `closed` comes once for each opened one and nothing after it. */
#pragma once
#include "base/error.h"
#include "proto/pb.h"

struct uplink;
enum uplink_stream { UPLINK_CONTROL, UPLINK_BULK };
struct uplink_events {
    void (*control)(void *arg, const Pb__AgentDown *message); /* loan */
    void (*bulk)(void *arg, const Pb__BulkDown *message);     /* loan */
    void (*closed)(void *arg, enum uplink_stream stream, enum status st, const char *text);
    void (*drained)(void *arg, enum uplink_stream stream);
};
/* chunk comes in order, then done once. total: of the whole, as the daemon says. */
struct uplink_fetch_events {
    void (*chunk)(void *arg, uint64_t total, const void *bytes, size_t len);
    void (*done)(void *arg, enum status st, const char *text);
};
struct uplink_ops {
    void (*listen)(struct uplink *uplink, const struct uplink_events *events, void *arg);
    void (*open)(struct uplink *uplink, enum uplink_stream stream);
    size_t (*control)(struct uplink *uplink, const Pb__AgentUp *message); /* bytes now queued */
    size_t (*bulk)(struct uplink *uplink, const Pb__BulkUp *message);
    void (*close)(struct uplink *uplink, enum uplink_stream stream); /* closed follows */
    void (*fetch)(struct uplink *uplink, const char *digest,
                  const struct uplink_fetch_events *events, void *arg);
    void (*destroy)(struct uplink *uplink); /* no event comes after it */
};
struct uplink {
    const struct uplink_ops *ops;
};
