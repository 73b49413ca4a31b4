/* store_pg_row_read.c - rows back into messages. */
#include "daemon/store_pg_row.h"
#include "daemon/store_pg_value.h"
#include <string.h>

/* Rows are our own, but a damaged table must not take the daemon's memory with it. */
#define PACKED_MAX ((size_t)64 << 20)

static ProtobufCMessage *unpack(const PGresult *result, int row, int column,
                                const ProtobufCMessageDescriptor *type)
{
    size_t len = (size_t)PQgetlength(result, row, column);

    if (len > PACKED_MAX)
        return NULL;
    return protobuf_c_message_unpack(type, NULL, len,
                                     (const uint8_t *)PQgetvalue(result, row, column));
}

ProtobufCMessage *store_pg_row_packed(const PGresult *result, int row,
                                      const ProtobufCMessageDescriptor *type)
{
    return unpack(result, row, 0, type);
}

Pb__Job *store_pg_row_job(const PGresult *result, int row)
{
    ProtobufCMessage *message = unpack(result, row, 0, &pb__job__descriptor);
    ProtobufCMessage *spec = unpack(result, row, 1, &pb__job_spec__descriptor);

    if (!message || !spec) {
        protobuf_c_message_free_unpacked(message, NULL);
        protobuf_c_message_free_unpacked(spec, NULL);
        return NULL;
    }
    Pb__Job *job = (Pb__Job *)message;
    if (job->spec)
        protobuf_c_message_free_unpacked(&job->spec->base, NULL);
    job->spec = (Pb__JobSpec *)spec;
    return job;
}

static void *new_message(const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *message = mem_alloc(type->sizeof_message);

    protobuf_c_message_init(type, message);
    return message;
}

static void get_bytes(const PGresult *result, int row, int column, protobuf_c_boolean *has,
                      ProtobufCBinaryData *out)
{
    if (PQgetisnull(result, row, column))
        return;
    *has = 1;
    out->len = (size_t)PQgetlength(result, row, column);
    out->data = out->len ? mem_dup(PQgetvalue(result, row, column), out->len) : NULL;
}

Pb__Event *store_pg_row_event(const PGresult *result, int row)
{
    Pb__Event *event = new_message(&pb__event__descriptor);

    event->has_seq = 1;
    event->seq = store_pg_value_get_i64(result, row, 0);
    event->has_at_us = !PQgetisnull(result, row, 1);
    event->at_us = store_pg_value_get_time(result, row, 1);
    event->kind = store_pg_value_get_text(result, row, 2);
    event->has_job = !PQgetisnull(result, row, 3);
    event->job = store_pg_value_get_i64(result, row, 3);
    event->has_attempt = !PQgetisnull(result, row, 4);
    event->attempt = (uint32_t)store_pg_value_get_i64(result, row, 4);
    event->node = store_pg_value_get_text(result, row, 5);
    event->from = store_pg_value_get_text(result, row, 6);
    event->to = store_pg_value_get_text(result, row, 7);
    event->reason = store_pg_value_get_text(result, row, 8);
    event->text = store_pg_value_get_text(result, row, 9);
    event->actor = store_pg_value_get_text(result, row, 10);
    return event;
}

Pb__RequestRow *store_pg_row_request(const PGresult *result, int row)
{
    Pb__RequestRow *request = new_message(&pb__request_row__descriptor);

    request->id = store_pg_value_get_text(result, row, 0);
    request->actor = store_pg_value_get_text(result, row, 1);
    request->method = store_pg_value_get_text(result, row, 2);
    request->has_at_us = !PQgetisnull(result, row, 3);
    request->at_us = store_pg_value_get_time(result, row, 3);
    get_bytes(result, row, 4, &request->has_digest, &request->digest);
    get_bytes(result, row, 5, &request->has_reply, &request->reply);
    return request;
}

Pb__MarkRow *store_pg_row_mark(const PGresult *result, int row)
{
    Pb__MarkRow *mark = new_message(&pb__mark_row__descriptor);

    mark->node = store_pg_value_get_text(result, row, 0);
    mark->spool_id = store_pg_value_get_text(result, row, 1);
    mark->has_bulk_seq = 1;
    mark->bulk_seq = (uint64_t)store_pg_value_get_i64(result, row, 2);
    return mark;
}

Pb__CodeRow *store_pg_row_code(const PGresult *result, int row)
{
    Pb__CodeRow *code = new_message(&pb__code_row__descriptor);

    code->digest = store_pg_value_get_text(result, row, 0);
    code->has_at_us = !PQgetisnull(result, row, 1);
    code->at_us = store_pg_value_get_time(result, row, 1);
    get_bytes(result, row, 2, &code->has_data, &code->data);
    return code;
}
