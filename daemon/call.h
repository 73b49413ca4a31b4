/* call.h - a mutating call: waits for a turn, decides on drafts, is answered once its transaction
 * is durable.
 *
 * Loop thread. Every call carries a request id; its answer is stored in the same transaction, so a
 * retry is answered and not repeated; the same id with another content is refused. */
#pragma once
#include "daemon/hub.h"

struct call {
    struct list node;          /* in hub->calls, then hub->turn_calls */
    ProtobufCMessage *request; /* owned */
    char *actor;
    core_done done;
    void *arg;
    enum status st; /* how deciding went */
    struct error err;
    ProtobufCMessage *reply; /* owned */
};

void call_run(struct hub *hub, struct call *call);
size_t call_weight(const struct call *call);
void call_rewind(struct call *call); /* before it is run again */
/* Answers it and frees it. st of the turn; a call that decided on failure answers that. */
void call_finish_take(struct hub *hub, struct call *call, enum status st, const struct error *err);
void call_load_take(struct hub *hub, Pb__RequestRow *row_take);
void call_init(struct hub *hub);
void call_fini(struct hub *hub); /* answers those that were refused */
void call_code_settled(struct entry *entry, bool committed, void *arg);
