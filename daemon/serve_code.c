/* serve_code.c - job code by content: taken from clients, digest verified, and given to agents.
 *
 * Bounds: 64 MiB a piece of code, few uploads and few pieces of code being fetched at once. Agents
 * that fetch the same code share one copy, which ends with the last of them. */
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/serve_hub.h"
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define SERVE_CODE_MAX    ((size_t)64 << 20)
#define SERVE_UPLOADS_MAX 4
#define SERVE_BLOBS_MAX   4
#define SERVE_CODE_CHUNK  ((size_t)128 << 10)

static bool serve_code_digest_ok(const char *digest)
{
    return digest && strlen(digest) == 64 && strspn(digest, "0123456789abcdef") == 64;
}

/* --- PutCode: an answered call is forgotten, so the upload ends with its answer. */

struct serve_upload {
    struct serve *serve;
    struct rpc_call *call; /* NULL: answered, or the caller has left */
    char digest[65];
    struct text data;
    bool asked;    /* the store was asked whether it has it */
    bool waiting;  /* an answer is on its way and holds this object */
    bool all_here; /* the client has half-closed */
};

static void serve_upload_leave(struct serve_upload *upload)
{
    upload->call = NULL;
    if (upload->waiting)
        return;
    text_fini(&upload->data);
    upload->serve->counts.uploads--;
    mem_free(upload);
}

static struct rpc_call *serve_upload_take_call(struct serve_upload *upload)
{
    struct rpc_call *call = upload->call;

    rpc_call_on_message(call, NULL, NULL);
    rpc_call_on_closed(call, NULL, NULL);
    serve_upload_leave(upload);
    return call;
}

static void serve_upload_fail(struct serve_upload *upload, enum status st, const char *text)
{
    serve_reply_fail(serve_upload_take_call(upload), st, text);
}

static void serve_upload_reply(struct serve_upload *upload, bool had_it, uint64_t bytes)
{
    Pb__PutCodeReply reply = PB__PUT_CODE_REPLY__INIT;

    reply.has_had_it = reply.has_bytes = true;
    reply.had_it = had_it;
    reply.bytes = bytes;
    rpc_call_reply(serve_upload_take_call(upload), &reply.base);
}

static void serve_upload_closed(void *arg, struct rpc_call *call)
{
    (void)call;
    serve_upload_leave(arg);
}

static void serve_upload_stored(void *arg, enum status st, const struct error *err,
                                const ProtobufCMessage *message)
{
    struct serve_upload *upload = arg;

    (void)message;
    upload->waiting = false;
    log_info("call.put-code", log_str("digest", upload->digest),
             log_int("bytes", (int64_t)upload->data.len), log_str("st", status_name(st)));
    if (!upload->call)
        serve_upload_leave(upload);
    else if (st == STATUS_OK)
        serve_upload_reply(upload, false, upload->data.len);
    else
        serve_upload_fail(upload, st, err ? err->text : status_name(st));
}

static void serve_upload_finish(struct serve_upload *upload)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char hex[2 * EVP_MAX_MD_SIZE + 1], actor[300];
    unsigned len = 0;
    Pb__CodeRow row = PB__CODE_ROW__INIT;

    if (EVP_Digest(text_get(&upload->data), upload->data.len, digest, &len, EVP_sha256(), NULL) !=
        1) {
        serve_upload_fail(upload, STATUS_INTERNAL, "SHA-256 failed");
        return;
    }
    text_to_hex(digest, len, hex);
    if (strcmp(hex, upload->digest) != 0) {
        serve_upload_fail(upload, STATUS_DATA_LOSS,
                          "the bytes do not match the digest: send again");
        return;
    }
    row.digest = upload->digest;
    row.has_data = row.has_at_us = true;
    row.data = (ProtobufCBinaryData){upload->data.len, (uint8_t *)upload->data.data};
    row.at_us = loop_wall_us(upload->serve->options.loop);
    upload->waiting = true;
    identity_text(rpc_call_identity(upload->call), actor, sizeof(actor));
    core_call(upload->serve->options.core, actor, &row.base, serve_upload_stored, upload);
}

static void serve_upload_asked(void *arg, enum status st, const struct error *err,
                               const ProtobufCMessage *message)
{
    struct serve_upload *upload = arg;
    const Pb__HaveCodeReply *reply = (const Pb__HaveCodeReply *)(const void *)message;

    upload->waiting = false;
    if (!upload->call)
        serve_upload_leave(upload);
    else if (st != STATUS_OK)
        serve_upload_fail(upload, st, err ? err->text : status_name(st));
    else if (reply->have)
        serve_upload_reply(upload, true, 0);
    else if (upload->all_here)
        serve_upload_finish(upload);
    else
        rpc_call_resume(upload->call);
}

/* The first piece names the digest; no more is read until we know whether it is wanted. */
static void serve_upload_ask(struct serve_upload *upload, const char *digest)
{
    Pb__HaveCodeRequest have = PB__HAVE_CODE_REQUEST__INIT;

    memcpy(upload->digest, digest, sizeof(upload->digest));
    upload->asked = upload->waiting = true;
    rpc_call_pause(upload->call);
    have.digest = upload->digest;
    reader_ask(upload->serve->options.reader, rpc_call_identity(upload->call), &have.base,
               serve_upload_asked, upload);
}

static void serve_upload_end(struct serve_upload *upload)
{
    upload->all_here = true;
    if (!upload->asked || upload->data.len == 0)
        serve_upload_fail(upload, STATUS_INVALID, "digest and data are needed");
    else if (!upload->waiting)
        serve_upload_finish(upload);
}

static void serve_upload_message(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct serve_upload *upload = arg;
    const Pb__PutCodeRequest *request = (const Pb__PutCodeRequest *)(const void *)message;

    (void)call;
    if (!message) {
        serve_upload_end(upload);
        return;
    }
    if (!upload->asked && !serve_code_digest_ok(request->digest)) {
        serve_upload_fail(upload, STATUS_INVALID, "digest: SHA-256 in lower-case hex is needed");
        return;
    }
    if (!upload->asked)
        serve_upload_ask(upload, request->digest);
    if (request->has_data)
        text_add_bytes(&upload->data, request->data.data, request->data.len);
    if (upload->data.full)
        serve_upload_fail(upload, STATUS_EXHAUSTED, "packed code is at most 64 MiB");
}

void serve_code_put(void *arg, struct rpc_call *call, const ProtobufCMessage *request)
{
    struct serve *serve = arg;

    (void)request;
    if (serve->counts.uploads >= SERVE_UPLOADS_MAX) {
        rpc_call_fail(call, STATUS_UNAVAILABLE, "other uploads are running: try again in 1 s");
        return;
    }
    struct serve_upload *upload = NEW(struct serve_upload);
    upload->serve = serve;
    upload->call = call;
    text_init(&upload->data, SERVE_CODE_MAX);
    serve->counts.uploads++;
    rpc_call_on_closed(call, serve_upload_closed, upload);
    rpc_call_on_message(call, serve_upload_message, upload);
}

/* --- FetchCode */

struct serve_blob { /* code on its way to agents */
    struct list node;
    struct serve *serve;
    char digest[65];
    Pb__CodeRow *row; /* NULL: the store's answer holds this object */
    struct list fetches;
};
struct serve_fetch {
    struct list node;
    struct serve_blob *blob; /* NULL: ended */
    struct serve *serve;
    struct rpc_call *call;
    size_t at;
};

static void serve_blob_destroy(struct serve_blob *blob)
{
    list_remove(&blob->node);
    if (blob->row)
        pb__code_row__free_unpacked(blob->row, NULL);
    mem_free(blob);
}

/* The loan of the blob ends; a blob without readers goes, unless the store still holds it. */
static void serve_fetch_leave(struct serve_fetch *fetch)
{
    struct serve_blob *blob = fetch->blob;

    if (!blob)
        return;
    fetch->blob = NULL;
    list_remove(&fetch->node);
    if (list_is_empty(&blob->fetches) && blob->row)
        serve_blob_destroy(blob);
}

static void serve_fetch_end(struct serve_fetch *fetch, enum status st, const char *text)
{
    serve_fetch_leave(fetch);
    rpc_call_end(fetch->call, st, text);
}

static void serve_fetch_pump(struct serve_fetch *fetch)
{
    const ProtobufCBinaryData *data;
    size_t queued = 0;

    if (!fetch->blob || !fetch->blob->row)
        return;
    data = &fetch->blob->row->data;
    while (fetch->at < data->len && queued <= SERVE_QUEUE_BYTES) {
        Pb__CodeChunk chunk = PB__CODE_CHUNK__INIT;
        size_t len = data->len - fetch->at;
        if (len > SERVE_CODE_CHUNK)
            len = SERVE_CODE_CHUNK;
        chunk.has_total = chunk.has_data = true;
        chunk.total = data->len;
        chunk.data = (ProtobufCBinaryData){len, data->data + fetch->at};
        queued = rpc_call_send(fetch->call, &chunk.base);
        fetch->at += len;
    }
    if (fetch->at == data->len)
        serve_fetch_end(fetch, STATUS_OK, "");
}

static void serve_fetch_drained(void *arg, struct rpc_call *call)
{
    (void)call;
    serve_fetch_pump(arg);
}

static void serve_fetch_closed(void *arg, struct rpc_call *call)
{
    struct serve_fetch *fetch = arg;

    (void)call;
    serve_fetch_leave(fetch);
    fetch->serve->counts.code_fetches--;
    mem_free(fetch);
}

static void serve_blob_loaded(void *arg, enum status st, const struct error *err,
                              ProtobufCMessage *reply_take)
{
    struct serve_blob *blob = arg;
    struct list *item;

    if (st == STATUS_OK)
        blob->row = (Pb__CodeRow *)(void *)reply_take;
    if (list_is_empty(&blob->fetches) || st != STATUS_OK) {
        while ((item = list_take_first(&blob->fetches))) {
            struct serve_fetch *fetch = LIST_ITEM(item, struct serve_fetch, node);
            fetch->blob = NULL;
            rpc_call_end(fetch->call, st, err ? err->text : status_name(st));
        }
        serve_blob_destroy(blob);
        return;
    }
    struct serve_fetch *last = LIST_ITEM(blob->fetches.prev, struct serve_fetch, node);
    LIST_EACH(&blob->fetches, each)
    {
        struct serve_fetch *fetch = LIST_ITEM(each, struct serve_fetch, node);
        serve_fetch_pump(fetch); /* may leave, and with the last one the blob goes */
        if (fetch == last)
            return;
    }
}

/* NULL: too many different ones are on their way. */
static struct serve_blob *serve_blob_obtain(struct serve *serve, const char *digest)
{
    Pb__CodeAsk ask = PB__CODE_ASK__INIT;
    size_t count = 0;

    LIST_EACH(&serve->code_blobs, item)
    {
        struct serve_blob *known = LIST_ITEM(item, struct serve_blob, node);
        if (strcmp(known->digest, digest) == 0)
            return known;
        count++;
    }
    if (count >= SERVE_BLOBS_MAX)
        return NULL;
    struct serve_blob *blob = NEW(struct serve_blob);
    blob->serve = serve;
    memcpy(blob->digest, digest, sizeof(blob->digest));
    list_init(&blob->fetches);
    list_add_last(&serve->code_blobs, &blob->node);
    ask.digest = blob->digest;
    serve->options.store->ops->query(serve->options.store, &ask.base, serve_blob_loaded, blob);
    return blob;
}

void serve_code_fetch(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct serve *serve = arg;
    const Pb__CodeAsk *ask = (const Pb__CodeAsk *)(const void *)message;

    if (!serve_code_digest_ok(ask->digest)) {
        rpc_call_end(call, STATUS_INVALID, "digest: SHA-256 in lower-case hex is needed");
        return;
    }
    struct serve_blob *blob = serve_blob_obtain(serve, ask->digest);
    if (!blob) {
        rpc_call_end(call, STATUS_UNAVAILABLE, "other code is being fetched: try again in 1 s");
        return;
    }
    struct serve_fetch *fetch = NEW(struct serve_fetch);
    fetch->serve = serve;
    fetch->call = call;
    fetch->blob = blob;
    list_add_last(&blob->fetches, &fetch->node);
    serve->counts.code_fetches++;
    rpc_call_on_closed(call, serve_fetch_closed, fetch);
    rpc_call_on_drained(call, serve_fetch_drained, fetch);
    serve_fetch_pump(fetch);
}

void serve_code_fini(struct serve *serve)
{
    LIST_EACH(&serve->code_blobs, item)
    serve_blob_destroy(LIST_ITEM(item, struct serve_blob, node));
}
