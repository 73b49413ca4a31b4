/* stream.h - what the client's end asks of its streams; the rest of them is in client.h.
 *
 * Loop thread. */
#pragma once

struct rpc_client;

/* Their closed functions run later, as for rpc_stream_cancel. */
void rpc_stream_cancel_all(struct rpc_client *client);
