/* reader_question.h - inside the reader: one question on its way to its answer.
 *
 * Owned by the reader's files; freed by reader_question_end, which gives the answer. */
#pragma once
#include "base/list.h"
#include "daemon/reader.h"

struct reader_question {
    struct list node; /* of the reader's, until it ends */
    struct reader *reader;
    struct identity who;
    bool known; /* who is filled */
    ProtobufCMessage *request;
    struct arena *arena;      /* for the answer */
    ProtobufCMessage *answer; /* in the arena, being built across a question to the store */
    int64_t from;             /* ListJobs: the store goes on below this id */
    void (*stored)(struct reader_question *q, enum status st, const struct error *err,
                   ProtobufCMessage *reply);
    ProtobufCMessage *kept; /* the store's reply, while the answer borrows from it */
    reader_done done;
    void *arg;
};

const struct core *reader_core(const struct reader *reader);
const struct identity *reader_question_who(const struct reader_question *q);
/* Asks the store; stored runs later and the reply stays in q->kept. */
void reader_question_store(struct reader_question *q, const ProtobufCMessage *request,
                           void (*stored)(struct reader_question *q, enum status st,
                                          const struct error *err, ProtobufCMessage *reply));
void reader_question_end(struct reader_question *q, enum status st, const struct error *err,
                         const ProtobufCMessage *reply);
void reader_question_fail(struct reader_question *q, enum status st, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* reader_jobs.c, reader_show.c, reader_checkpoint.c */
void reader_jobs_list(struct reader_question *q);
void reader_show_job(struct reader_question *q);
void reader_checkpoint_show(struct reader_question *q);
void reader_checkpoint_retention(struct reader_question *q);
