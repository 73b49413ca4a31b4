/* store_pg_row.h - changes of state to statements: one statement a kind, however many rows.
 *
 * Loop thread. Owns copies: the changes are free once added. CHANGE_REPORTS is not for here (see
 * store_pg_point.h). A job's spec is written when the job is new and never again. */
#pragma once
#include "daemon/store.h"
#include "daemon/store_pg_array.h"
#include "proto/pb.h"

struct store_pg_row_set {
    struct store_pg_array arrays[STORE_STATEMENT_COUNT]; /* by statement; most stay empty */
    int64_t job_max;                                     /* highest id of a job in here */
};

void store_pg_row_init(struct store_pg_row_set *set);
void store_pg_row_fini(struct store_pg_row_set *set);
/* All changes of the batch but its reports; of two changes of one row the later. jobs_known: jobs
 * up to this id are surely in the table already. */
void store_pg_row_gather(struct store_pg_row_set *set, const struct batch *batch,
                         int64_t jobs_known);
/* STATUS_EXHAUSTED: too many bytes for one transaction. */
enum status store_pg_row_check(const struct store_pg_row_set *set, struct error *err) MUST_CHECK;
/* Within an op. */
void store_pg_row_send(struct store_pg_row_set *set, struct store_pg_link *link);

/* The other way, from a result of the LOAD_, LIST_, SHOW_ and FIND_ statements. NULL: the row can't
 * be read. Free with protobuf_c_message_free_unpacked(m, NULL). */
ProtobufCMessage *store_pg_row_packed(const PGresult *result, int row,
                                      const ProtobufCMessageDescriptor *type);
Pb__Job *store_pg_row_job(const PGresult *result, int row); /* packed, spec */
Pb__Event *store_pg_row_event(const PGresult *result, int row);
Pb__RequestRow *store_pg_row_request(const PGresult *result, int row);
Pb__MarkRow *store_pg_row_mark(const PGresult *result, int row);
Pb__CodeRow *store_pg_row_code(const PGresult *result, int row);
