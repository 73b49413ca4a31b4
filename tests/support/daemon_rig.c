/* daemon_rig.c - see daemon_rig.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* CMocka needs those four first. */
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/text/text_format.h"
#include "rpc/ca.h"
#include "tests/support/daemon_rig.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the daemon */

static void rig_tick(void *arg)
{
    struct daemon_rig *rig = arg;

    loop_timer_set(rig->tick, 10000);
}

struct rig_started {
    bool done;
    enum status st;
};

static void rig_started(void *arg, enum status st, const struct error *err)
{
    struct rig_started *started = arg;

    (void)err;
    started->done = true;
    started->st = st;
}

static void rig_issue(struct daemon_rig *rig, const char *kind, const char *name, const char *unit)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1"};
    SCOPED_TEXT char *ca = mem_printf("%s/ca", rig->dir);
    SCOPED_TEXT char *out = mem_printf("%s/%s", rig->dir, name);
    struct ca_request request = {.kind = kind, .name = name, .unit = unit};
    struct error err;

    if (strcmp(kind, "daemon") == 0) {
        request.hosts = hosts;
        request.hosts_count = COUNT_OF(hosts);
    }
    assert_int_equal(ca_init(ca, "rig", &err), STATUS_OK);
    if (ca_issue(ca, &request, out, "cert", &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void rig_serve(struct daemon_rig *rig)
{
    SCOPED_TEXT char *cert = mem_printf("%s/rondod/cert.pem", rig->dir);
    SCOPED_TEXT char *key = mem_printf("%s/rondod/cert.key", rig->dir);
    SCOPED_TEXT char *ca = mem_printf("%s/rondod/ca.pem", rig->dir);
    struct rpc_server_options options = {
        .listen = "127.0.0.1:0", .cert = cert, .key = key, .ca = ca};
    struct error err;
    size_t count;
    const struct rpc_service *services = serve_services(rig->serve, &count);

    if (rpc_server_create(rig->loop, &options, services, count, &rig->server, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

void daemon_rig_start(struct daemon_rig *rig)
{
    struct rig_started started = {0};
    struct error err;

    rig->core = core_create(&(struct core_options){.loop = rig->loop,
                                                   .store = rig->store,
                                                   .lease_ms = 60000,
                                                   .heartbeat_ms = 1000,
                                                   .ended_max = 100,
                                                   .queued_max = 5000});
    rig->reader = reader_create(&(struct reader_options){
        .loop = rig->loop, .core = rig->core, .store = rig->store, .pass_ms_max = 60000});
    rig->serve = serve_create(&(struct serve_options){
        .loop = rig->loop, .core = rig->core, .store = rig->store, .reader = rig->reader});
    if (status_server_create(&(struct status_options){.loop = rig->loop,
                                                      .core = rig->core,
                                                      .reader = rig->reader,
                                                      .listen = "127.0.0.1:0"},
                             &rig->status, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    core_start(rig->core, rig_started, &started);
    DAEMON_RIG_UNTIL(rig, started.done);
    assert_int_equal(started.st, STATUS_OK);
    rig_serve(rig);
}

void daemon_rig_stop(struct daemon_rig *rig)
{
    for (size_t i = 0; i < rig->clients_count; i++)
        rpc_client_destroy(rig->clients[i]);
    rig->clients_count = 0;
    rpc_server_destroy(rig->server, 100);
    status_server_destroy(rig->status);
    /* What was asked of the store is answered while those who asked still live. */
    for (int i = 0; i < 10; i++)
        uv_run(loop_uv_handle(rig->loop), UV_RUN_NOWAIT);
    core_destroy(rig->core);
    for (int i = 0; i < 3; i++)
        uv_run(loop_uv_handle(rig->loop), UV_RUN_NOWAIT);
    reader_destroy(rig->reader);
    serve_destroy(rig->serve);
}

struct daemon_rig *daemon_rig_open(void)
{
    struct daemon_rig *rig = NEW(struct daemon_rig);
    const char *base = getenv("TMPDIR");

    log_setup("test", LOG_ERROR, getenv("RIG_LOG") ? 2 : -1);
    rig->dir = mem_printf("%s/rig-XXXXXX", base && *base ? base : "/tmp");
    assert_non_null(mkdtemp(rig->dir));
    rig->loop = loop_uv_create();
    rig->tick = loop_timer_create(rig->loop, rig_tick, rig);
    loop_timer_set(rig->tick, 10000);
    rig->store = fake_store_create(rig->loop);
    rig_issue(rig, "daemon", "rondod", NULL);
    daemon_rig_start(rig);
    return rig;
}

void daemon_rig_close(struct daemon_rig *rig)
{
    daemon_rig_stop(rig);
    rig->store->ops->destroy(rig->store);
    loop_timer_destroy(rig->tick);
    loop_uv_destroy(rig->loop);
    assert_int_equal(file_remove_tree(rig->dir, NULL), STATUS_OK);
    mem_free(rig->dir);
    mem_free(rig);
}

int daemon_rig_setup(void **state)
{
    *state = daemon_rig_open();
    return 0;
}

int daemon_rig_teardown(void **state)
{
    daemon_rig_close(*state);
    return 0;
}

/* --- clients */

/* A busy machine may be too slow for the first handshake; the tests are not about that. */
static void rig_connect(struct daemon_rig *rig, struct rpc_client *client)
{
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;

    DAEMON_RIG_UNTIL(rig,
                     daemon_rig_call(client, "Status", &request.base, NULL, NULL) == STATUS_OK);
}

struct rpc_client *daemon_rig_client(struct daemon_rig *rig, const char *kind, const char *name,
                                     const char *unit)
{
    SCOPED_TEXT char *cert = mem_printf("%s/%s/cert.pem", rig->dir, name);
    SCOPED_TEXT char *key = mem_printf("%s/%s/cert.key", rig->dir, name);
    SCOPED_TEXT char *ca = mem_printf("%s/%s/ca.pem", rig->dir, name);
    SCOPED_TEXT char *target = mem_printf("127.0.0.1:%u", rpc_server_port(rig->server));
    struct rpc_client_options options = {.target = target, .cert = cert, .key = key, .ca = ca};
    struct rpc_client *client;
    struct error err;

    rig_issue(rig, kind, name, unit);
    if (rpc_client_create(rig->loop, &options, &client, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_true(rig->clients_count < COUNT_OF(rig->clients));
    rig->clients[rig->clients_count++] = client;
    rig_connect(rig, client);
    return client;
}

struct rpc_client *daemon_rig_admin(struct daemon_rig *rig)
{
    return daemon_rig_client(rig, "user", "root", "role=admin,project=*");
}

enum status daemon_rig_call(struct rpc_client *client, const char *method,
                            const ProtobufCMessage *request, ProtobufCMessage **reply,
                            struct error *err)
{
    ProtobufCMessage *got = NULL;
    struct error own = {0};
    enum status st = rpc_client_call_wait(client, &pb__control__descriptor, method, request, 30000,
                                          &got, err ? err : &own);

    if (reply)
        *reply = got;
    else if (got)
        protobuf_c_message_free_unpacked(got, NULL);
    return st;
}

Pb__JobSpec *daemon_rig_spec(const char *name, const char *project)
{
    SCOPED_TEXT char *yaml =
        mem_printf("name: %s\nproject: %s\nroles:\n- name: trainer\n  command: [/bin/true]\n"
                   "  env: {TOKEN: secret}\n",
                   name, project);
    ProtobufCMessage *out = NULL;
    struct text problems;

    text_init(&problems, 0);
    if (text_format_parse("rig", yaml, strlen(yaml), &pb__job_spec__descriptor, &out, &problems) !=
        STATUS_OK)
        fail_msg("%s", text_get(&problems));
    text_fini(&problems);
    return (Pb__JobSpec *)(void *)out;
}

int64_t daemon_rig_submit(struct rpc_client *client, const char *request_id, Pb__JobSpec *spec_take)
{
    Pb__SubmitRequest request = PB__SUBMIT_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    struct error err = {0};

    request.request_id = (char *)request_id;
    request.spec = spec_take;
    if (daemon_rig_call(client, "Submit", &request.base, &reply, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    int64_t job = ((Pb__SubmitReply *)(void *)reply)->job;
    protobuf_c_message_free_unpacked(reply, NULL);
    pb__job_spec__free_unpacked(spec_take, NULL);
    return job;
}

/* --- streams */

static void rig_stream_message(void *arg, const ProtobufCMessage *message)
{
    struct daemon_rig_stream *stream = arg;

    assert_true(stream->count < COUNT_OF(stream->messages));
    stream->messages[stream->count++] = message_copy(message);
}

static void rig_stream_closed(void *arg, enum status st, const char *text)
{
    struct daemon_rig_stream *stream = arg;

    stream->closed = true;
    stream->stream = NULL;
    stream->st = st;
    snprintf(stream->text, sizeof(stream->text), "%s", text ? text : "");
}

struct daemon_rig_stream *daemon_rig_stream_open(struct rpc_client *client,
                                                 const ProtobufCServiceDescriptor *service,
                                                 const char *method,
                                                 const ProtobufCMessage *request)
{
    static const struct rpc_stream_events events = {rig_stream_message, rig_stream_closed, NULL};
    struct daemon_rig_stream *stream = NEW(struct daemon_rig_stream);

    stream->stream = rpc_client_stream(client, service, method, 0, &events, stream);
    if (request) {
        rpc_stream_send(stream->stream, request);
        rpc_stream_end_sending(stream->stream);
    }
    return stream;
}

void daemon_rig_stream_close(struct daemon_rig *rig, struct daemon_rig_stream *stream)
{
    if (stream->stream)
        rpc_stream_cancel(stream->stream);
    DAEMON_RIG_UNTIL(rig, stream->closed);
    for (size_t i = 0; i < stream->count; i++)
        protobuf_c_message_free_unpacked(stream->messages[i], NULL);
    mem_free(stream);
}

Pb__AgentUp *daemon_rig_hello(const char *node, const char *instance, uint32_t slots)
{
    struct text yaml;
    struct text problems;
    ProtobufCMessage *out = NULL;

    text_init(&yaml, 0);
    text_init(&problems, 0);
    text_addf(&yaml,
              "hello:\n  protocol: 1\n  node: %s\n  instance: %s\n  spool_id: spool-%s\n"
              "  boot_id: boot\n  inventory:\n    hostname: %s\n    address: 127.0.0.1\n"
              "    port_first: 20000\n    port_last: 20100\n    vaults:\n"
              "    - {name: default, path: /tmp, class: SHARED}\n    devices:\n",
              node, instance, node, node);
    for (uint32_t i = 0; i < slots; i++)
        text_addf(&yaml, "    - {kind: cpu, index: %u, health: HEALTHY}\n", i);
    if (text_format_parse("hello", text_get(&yaml), yaml.len, &pb__agent_up__descriptor, &out,
                          &problems) != STATUS_OK)
        fail_msg("%s", text_get(&problems));
    text_fini(&yaml);
    text_fini(&problems);
    return (Pb__AgentUp *)(void *)out;
}
