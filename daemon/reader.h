/* reader.h - answers every question about state: from committed rows in memory, and from the store
 * for what memory does not hold.
 *
 * Loop thread. The gRPC service and the status endpoint ask the same reader, so both give the same
 * answers. While the store is away memory answers alone and says how old it is. done runs exactly
 * once, later. Destroy the reader after its core and store, when the loop does not run any more:
 * what is still open is then answered CANCELLED. */
#pragma once
#include "daemon/core.h"
#include "daemon/view.h"

struct reader;
struct reader_options {
    struct loop *loop;
    const struct core *core;
    struct store *store;
    uint64_t pass_ms_max; /* see view.h */
};
struct reader *reader_create(const struct reader_options *options);
void reader_shut(
    struct reader *reader); /* the core is about to go: answers UNAVAILABLE from now on */
void reader_destroy(struct reader *reader); /* NULL is fine */
void reader_limits(const struct reader *reader, struct view_limits *out);

/* reply is a loan until done returns. */
typedef void (*reader_done)(void *arg, enum status st, const struct error *err,
                            const ProtobufCMessage *reply);
/* request, by descriptor: ListJobs, ShowJob, ListEvents, Metrics, ListCheckpoints, ListNodes,
 * HaveCode, CodeUse (a HaveCodeReply), Status. Copied. who NULL: nobody that we know. */
void reader_ask(struct reader *reader, const struct identity *who, const ProtobufCMessage *request,
                reader_done done, void *arg);
