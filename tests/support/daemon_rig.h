/* daemon_rig.h - a whole daemon in one process for unit tests: the real core, services and status
 * endpoint over the fake store, served with mTLS on free ports, and clients of every role.
 *
 * Use daemon_rig_setup and daemon_rig_teardown with CMocka. Everything runs on rig->loop, which
 * only turns inside DAEMON_RIG_UNTIL and the waiting calls. */
#pragma once
#include "base/loop.h"
#include "daemon/core.h"
#include "daemon/reader.h"
#include "daemon/serve.h"
#include "daemon/status.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include "tests/support/fake_store.h"
#include <uv.h>

struct daemon_rig {
    struct loop *loop;
    struct loop_timer *tick;
    char *dir;
    struct store *store;
    struct core *core;
    struct reader *reader;
    struct serve *serve;
    struct rpc_server *server;
    struct status_server *status;
    struct rpc_client *clients[8];
    size_t clients_count;
};

#define DAEMON_RIG_UNTIL(rig, condition)                                                           \
    do {                                                                                           \
        int64_t rig_end = loop_now_us((rig)->loop) + 60000000;                                     \
        while (!(condition)) {                                                                     \
            assert_true(loop_now_us((rig)->loop) < rig_end);                                       \
            uv_run(loop_uv_handle((rig)->loop), UV_RUN_ONCE);                                      \
        }                                                                                          \
    } while (0)

struct daemon_rig *daemon_rig_open(void);
void daemon_rig_close(struct daemon_rig *rig);
int daemon_rig_setup(void **state);
int daemon_rig_teardown(void **state);
/* Starts the core on what the store holds; daemon_rig_open has done it once. */
void daemon_rig_start(struct daemon_rig *rig);
void daemon_rig_stop(struct daemon_rig *rig);

/* kind "user", "agent"; unit "role=admin,project=*" or NULL. The rig owns it. */
struct rpc_client *daemon_rig_client(struct daemon_rig *rig, const char *kind, const char *name,
                                     const char *unit);
struct rpc_client *daemon_rig_admin(struct daemon_rig *rig);
/* A call of Control, waiting. *reply (may be NULL when not wanted) is freed by the caller. */
enum status daemon_rig_call(struct rpc_client *client, const char *method,
                            const ProtobufCMessage *request, ProtobufCMessage **reply,
                            struct error *err);
/* A valid spec of one role, and its submit; answers the job's number. */
Pb__JobSpec *daemon_rig_spec(const char *name, const char *project);
int64_t daemon_rig_submit(struct rpc_client *client, const char *request_id,
                          Pb__JobSpec *spec_take);

/* A stream and what came over it. */
struct daemon_rig_stream {
    struct rpc_stream *stream; /* NULL once closed */
    ProtobufCMessage *messages[4096];
    size_t count;
    bool closed;
    enum status st;
    char text[512];
};
struct daemon_rig_stream *daemon_rig_stream_open(struct rpc_client *client,
                                                 const ProtobufCServiceDescriptor *service,
                                                 const char *method,
                                                 const ProtobufCMessage *request);
/* Cancels it when it is open; waits for its end. */
void daemon_rig_stream_close(struct daemon_rig *rig, struct daemon_rig_stream *stream);

/* An agent's hello with `slots` CPU slots. */
Pb__AgentUp *daemon_rig_hello(const char *node, const char *instance, uint32_t slots);
/* One HTTP request, waiting; the answer with its headers, to be freed. */
char *daemon_rig_http(struct daemon_rig *rig, const char *request);
char *daemon_rig_get(struct daemon_rig *rig, const char *path);
/* The same, but stops once the answer holds `until`. */
char *daemon_rig_events(struct daemon_rig *rig, const char *path, const char *until);
