/* serve_hub.h - inside the services: what the handlers share, and the handlers by file.
 *
 * Loop thread. The argument of every handler is struct serve. */
#pragma once
#include "base/list.h"
#include "base/map.h"
#include "daemon/serve.h"

#define SERVE_QUEUE_BYTES ((size_t)256 << 10) /* a stream with more than this queued waits */

struct serve {
    struct serve_options options;
    struct serve_counts counts;
    uint64_t term; /* once it is known */
    struct rpc_service services[2];
    /* serve_logs.c */
    struct map *log_asks; /* ask number -> relay */
    uint64_t log_ask_last;
    struct list log_relays;
    /* serve_code.c */
    struct list code_blobs;
    struct map *code_known; /* digest -> struct code_known: serve_code_use.c */
    /* serve_fsck.c */
    struct list fscks;
    uint64_t fsck_ask_last;
    /* serve_agents.c */
    struct list agents;
    struct map *agents_by_key; /* "node instance" -> the connection whose hello came last */
};

/* serve_reply.c: a unary call that waits for an answer. */
struct serve_reply;
/* Answers later through serve_reply_done, whose signature is core_done and reader_done. name is a
 * static text: changes are logged under it, reads (NULL) are not. */
struct serve_reply *serve_reply_open(struct rpc_call *call, const char *name, int64_t job);
void serve_reply_done(void *arg, enum status st, const struct error *err,
                      const ProtobufCMessage *reply);
/* Ends the call; says "try again" where that helps. */
void serve_reply_fail(struct rpc_call *call, enum status st, const char *text);
/* 8 to 64 characters of letters, digits and ".:_-". */
bool serve_reply_request_id_ok(const char *id);

uint64_t serve_term(struct serve *serve);

/* Handlers. */
void serve_submit(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_submit_many(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_control_cancel(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_control_hold(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_control_pin_checkpoint(void *arg, struct rpc_call *call,
                                  const ProtobufCMessage *request);
void serve_control_verify_checkpoint(void *arg, struct rpc_call *call,
                                     const ProtobufCMessage *request);
void serve_control_hold_checkpoint(void *arg, struct rpc_call *call,
                                   const ProtobufCMessage *request);
void serve_control_set_node(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_control_read(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_fsck(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_watch(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_logs(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_code_put(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_code_fetch(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_agents_control(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
void serve_agents_bulk(void *arg, struct rpc_call *call, const ProtobufCMessage *request);

/* serve_code_use.c: is the code of these specs stored? done runs exactly once, maybe at once; st is
 * the first failure to find out, missing[i] says that spec i names code that is not there. specs
 * are borrowed for the call; entries may be NULL. */
typedef void (*serve_code_use_done)(void *arg, enum status st, const struct error *err,
                                    const bool *missing);
void serve_code_use(struct serve *serve, const Pb__JobSpec *const *specs, size_t count,
                    serve_code_use_done done, void *arg);
/* What to tell the client. */
void serve_code_use_text(const Pb__JobSpec *spec, char *out, size_t cap);
void serve_code_use_fini(struct serve *serve);

/* serve_code.c: code whose loading ended with the store. */
void serve_code_fini(struct serve *serve);
/* serve_agents.c */
bool serve_agents_bulk_is_up(const struct agent_link *link);
/* serve_logs.c: what the node of the given name sent; its bulk stream went down. */
void serve_logs_chunk(struct serve *serve, const char *node, const Pb__LogChunk *chunk);
void serve_logs_node_away(struct serve *serve, const char *node);
/* serve_fsck_look.c: the same of vaults. */
void serve_fsck_chunk(struct serve *serve, const char *node, const Pb__VaultChunk *chunk);
void serve_fsck_node_away(struct serve *serve, const char *node);
/* serve_fsck.c: runs whose last answers ended with the store. */
void serve_fsck_fini(struct serve *serve);
