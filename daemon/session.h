/* session.h - an agent's connection: hello, what it reports, acknowledgements. Level-triggered:
 * reports are merged as they come and looked at in the next turn; they are acknowledged once what
 * they led to is durable. */
#pragma once
#include "daemon/hub.h"

struct session_note { /* a staged, sealed or deleted entry not yet durable */
    struct list node;
    uint64_t seq;
    ProtobufCMessage *message;
};
void session_notes_drop(struct list *notes, uint64_t through_seq);
void session_settle(
    struct node *node); /* after a durable turn that looked at it: welcome, acknowledge */
void session_forget(struct node *node);      /* all that was heard */
void session_devices_run(struct node *node); /* inside a turn: health of devices has changed */
bool session_has_stale(
    const struct node *node); /* workers of superseded attempts are still there */
void session_devices_keep(struct node *node, const Pb__ActualReport *report);
void session_drop_actual(struct node *node, struct actual *actual);
void session_drop_tracebacks(struct node *node); /* of what a durable turn has looked at */
