/* control.h - the bench as a client of the daemon: channels with mTLS, submits, a watch.
 *
 * Loop thread. Channel 0 is open from the start; further ones are a connection each. */
#pragma once
#include "proto/pb.h"
#include "rpc/client.h"
#include "tests/bench/bench.h"

struct control;
/* to: the state's name, such as SUCCEEDED. */
typedef void (*control_job)(void *arg, int64_t job, const char *to);

enum status control_open(struct bench *bench, const char *context, struct control **out,
                         struct error *err) MUST_CHECK;
void control_close(struct control *control); /* NULL is fine */
/* Opens channels up to count and makes each connect. */
enum status control_channels(struct control *control, size_t count, struct error *err) MUST_CHECK;
struct rpc_client *control_client(struct control *control, size_t channel);
/* Any call of Control, waiting. reply may be NULL; free it with free_unpacked. */
enum status control_call(struct control *control, const char *method,
                         const ProtobufCMessage *request, ProtobufCMessage **reply,
                         struct error *err) MUST_CHECK;
enum status control_submit(struct control *control, const ProtobufCMessage *request, int64_t *job,
                           struct error *err) MUST_CHECK;
enum status control_cancel(struct control *control, int64_t job, struct error *err) MUST_CHECK;
/* fn hears each new state of each job, once it is committed. One watch at a time. */
enum status control_watch(struct control *control, control_job fn, void *arg,
                          struct error *err) MUST_CHECK;
void control_unwatch(struct control *control);
/* Nodes that are healthy now. */
enum status control_nodes(struct control *control, uint32_t *healthy, struct error *err) MUST_CHECK;
/* Cancels whatever has not ended and waits for it. */
enum status control_clear(struct control *control, struct error *err) MUST_CHECK;
