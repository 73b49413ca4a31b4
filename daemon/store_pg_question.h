/* store_pg_question.h - one question to history, from its request to its reply.
 *
 * Private to the store. A kind of question is a row: what it sends, how results become the reply.
 * Loop thread. The question owns its copies of what it needs until its answer is given. */
#pragma once
#include "daemon/store_pg_hub.h"
#include "daemon/store_pg_value.h"

struct store_pg_question;
struct store_pg_question_kind {
    const ProtobufCMessageDescriptor *request, *reply;
    /* Sends statements within an op; may note why the request is wrong in question->err instead. */
    void (*send)(struct store_pg_question *question, struct store_pg_link *link);
    void (*result)(struct store_pg_question *question, size_t call, const PGresult *result);
    /* All results are in. Returns true when it wants send to run again (a second op); may be NULL.
     * May set err. */
    bool (*settle)(struct store_pg_question *question);
    void (*fini)(struct store_pg_question *question); /* may be NULL */
    bool by_row;
};

struct store_pg_question {
    struct store_pg *pg;
    const struct store_pg_question_kind *kind;
    struct store_pg_op op;
    struct store_pg_later later;
    ProtobufCMessage *request; /* a copy */
    ProtobufCMessage *reply;   /* being built */
    void *state;               /* the kind's own */
    int stage;
    store_reply done;
    void *arg;
    struct error err; /* code STATUS_OK: none */
};

/* Appends to a repeated message field of the reply: grows by doubling, no cap beyond the query's.
 */
void store_pg_question_append(void *items_of_field, size_t *count, void *item_take);

extern const struct store_pg_question_kind store_pg_metric_kind;
