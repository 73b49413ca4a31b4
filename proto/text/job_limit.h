/* job_limit.h - rows: the allowed range of each number, and the kind of each text, in a job spec.
 *
 * Any thread; const tables. A test holds that every number and every text below JobSpec has a row.
 */
#pragma once
#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

struct job_limit_number {
    const ProtobufCMessageDescriptor *type;
    const char *field;
    int64_t min, max;
};
enum job_limit_kind {
    JOB_LIMIT_ANY,  /* UTF-8 */
    JOB_LIMIT_LINE, /* and no control characters */
    JOB_LIMIT_PATH, /* and no ".." among its parts */
    JOB_LIMIT_SLUG, /* [a-z0-9._-], no dot first */
    JOB_LIMIT_WORD, /* [a-z0-9-] */
    JOB_LIMIT_HEX   /* [0-9a-f] */
};
struct job_limit_text {
    const ProtobufCMessageDescriptor *type;
    const char *field;
    enum job_limit_kind kind;
    size_t min, max; /* bytes; an unset or empty field is not looked at when min is 0 */
};

/* NULL when there is none. */
const struct job_limit_number *job_limit_number(const ProtobufCMessageDescriptor *type,
                                                const char *field);
const struct job_limit_number *job_limit_number_of(const ProtobufCFieldDescriptor *field);
const struct job_limit_text *job_limit_text(const ProtobufCMessageDescriptor *type,
                                            const char *field);
/* What is wrong with the text, or NULL. Loan: static. */
const char *job_limit_text_problem(const struct job_limit_text *row, const char *text, size_t len);
