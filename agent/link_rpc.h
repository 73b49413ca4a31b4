/* link_rpc.h - the uplink over gRPC: one channel to one daemon of the list, the next one when it
 * does not answer. Loop thread. */
#pragma once
#include "agent/uplink.h"
#include "base/loop.h"
#include "base/option.h"

struct link_rpc_options { /* copied */
    struct loop *loop;
    const struct option_list *daemons; /* host:port or unix:/path */
    const char *cert, *key, *ca, *server_name;
};
enum status link_rpc_create(const struct link_rpc_options *options, struct uplink **out,
                            struct error *err) MUST_CHECK;
