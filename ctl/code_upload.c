#include "ctl/code_upload.h"
#include "base/mem.h"
#include <string.h>

enum { PIECE_BYTES = 512 << 10, QUEUED_BYTES = 4 << 20, CALL_MS = 600000 };

struct upload {
    struct connect *connect;
    const struct pack *pack;
    struct rpc_stream *stream;
    size_t sent;
    bool ended, closed, answered;
    enum status st;
    struct error err;
};

/* Sends pieces until enough is queued; what is left waits for `drained`. */
static void send_pieces(struct upload *upload)
{
    const struct text *tar = &upload->pack->tar;
    size_t queued = 0;
    while (!upload->closed && upload->sent < tar->len && queued < QUEUED_BYTES) {
        size_t left = tar->len - upload->sent, size = left < PIECE_BYTES ? left : PIECE_BYTES;
        Pb__PutCodeRequest request = PB__PUT_CODE_REQUEST__INIT;
        request.digest = (char *)(uintptr_t)upload->pack->digest;
        request.has_data = 1;
        request.data = (ProtobufCBinaryData){size, (uint8_t *)tar->data + upload->sent};
        upload->sent += size;
        queued = rpc_stream_send(upload->stream, &request.base);
    }
    if (!upload->closed && !upload->ended && upload->sent == tar->len) {
        upload->ended = true;
        rpc_stream_end_sending(upload->stream);
    }
}

static void upload_drained(void *arg)
{
    send_pieces(arg);
}

static void upload_message(void *arg, const ProtobufCMessage *message)
{
    struct upload *upload = arg;
    (void)message;
    upload->answered = true;
}

static void upload_closed(void *arg, enum status st, const char *text)
{
    struct upload *upload = arg;
    upload->closed = true;
    upload->st = upload->answered ? STATUS_OK : st != STATUS_OK ? st : STATUS_INTERNAL;
    error_set(&upload->err, upload->st, "%s", text && *text ? text : status_name(upload->st));
    loop_uv_stop(connect_loop(upload->connect));
}

static enum status send_once(struct connect *connect, const struct pack *pack, struct error *err)
{
    static const struct rpc_stream_events events = {
        .message = upload_message, .closed = upload_closed, .drained = upload_drained};
    struct upload upload = {.connect = connect, .pack = pack};
    upload.stream = rpc_client_stream(connect_client(connect), &pb__control__descriptor, "PutCode",
                                      CALL_MS, &events, &upload);
    send_pieces(&upload);
    while (!upload.closed)
        loop_uv_run(connect_loop(connect));
    if (upload.st != STATUS_OK && err)
        *err = upload.err;
    return upload.st;
}

static enum status ask_have(struct connect *connect, const char *digest, bool *have,
                            struct error *err)
{
    Pb__HaveCodeRequest request = PB__HAVE_CODE_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.digest = (char *)(uintptr_t)digest;
    enum status st = connect_call(connect, "HaveCode", &request.base, &reply, err);
    if (st != STATUS_OK)
        return st;
    *have = ((Pb__HaveCodeReply *)reply)->have;
    protobuf_c_message_free_unpacked(reply, NULL);
    return STATUS_OK;
}

enum status code_upload(struct connect *connect, const struct pack *pack, struct error *err)
{
    bool have = false;
    enum status st = ask_have(connect, pack->digest, &have, err);
    if (st != STATUS_OK || have)
        return st;
    int64_t end = connect_now_ms(connect) + connect_timeout_ms(connect);
    for (unsigned tries = 0;; tries++) {
        st = send_once(connect, pack, err);
        if (!connect_may_retry(st) || connect_now_ms(connect) >= end)
            return st;
        connect_say_waiting(connect, err->text);
        connect_pause(tries);
    }
}
