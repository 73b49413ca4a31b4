/* test_serve_agents.c - agents' streams, their bounds and names, log relays, code up and down. */
#include "base/text.h"
#include "daemon/window.h"
#include "proto/pb.h"
#include "tests/support/daemon_rig.h"
#include "tests/unit/unit.h"
#include <openssl/evp.h>

#define AS(type, message) ((type *)(void *)(message))

struct agent {
    struct rpc_client *client;
    struct daemon_rig_stream *control, *bulk;
};

static void say_hello(struct agent *agent, const char *node, const char *instance)
{
    Pb__AgentUp *up = daemon_rig_hello(node, instance, 4);

    agent->control =
        daemon_rig_stream_open(agent->client, &pb__agents__descriptor, "Control", NULL);
    rpc_stream_send(agent->control->stream, &up->base);
    pb__agent_up__free_unpacked(up, NULL);
}

static void bulk_hello(struct agent *agent, const char *node, const char *instance)
{
    Pb__BulkUp up = PB__BULK_UP__INIT;
    Pb__BulkHello hello = PB__BULK_HELLO__INIT;
    char spool[64];

    snprintf(spool, sizeof(spool), "spool-%s", node);
    hello.has_protocol = true;
    hello.protocol = 1;
    hello.node = (char *)node;
    hello.instance = (char *)instance;
    hello.spool_id = spool;
    up.hello = &hello;
    agent->bulk = daemon_rig_stream_open(agent->client, &pb__agents__descriptor, "Bulk", NULL);
    rpc_stream_send(agent->bulk->stream, &up.base);
}

static const Pb__AgentDown *find_welcome(const struct agent *agent)
{
    for (size_t i = 0; i < agent->control->count; i++)
        if (AS(Pb__AgentDown, agent->control->messages[i])->welcome)
            return AS(Pb__AgentDown, agent->control->messages[i]);
    return NULL;
}

static void join(struct daemon_rig *rig, struct agent *agent, const char *node)
{
    Pb__AgentUp up = PB__AGENT_UP__INIT;
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;

    agent->client = daemon_rig_client(rig, "agent", node, NULL);
    say_hello(agent, node, "one");
    DAEMON_RIG_UNTIL(rig, find_welcome(agent));
    report.has_whole = report.whole = true;
    up.has_seq = true;
    up.seq = 1;
    up.report = &report;
    rpc_stream_send(agent->control->stream, &up.base);
    bulk_hello(agent, node, "one");
    DAEMON_RIG_UNTIL(rig, agent->bulk->count > 0);
    assert_true(AS(Pb__BulkDown, agent->bulk->messages[0])->has_ack_seq);
}

static void leave(struct daemon_rig *rig, struct agent *agent)
{
    if (agent->bulk)
        daemon_rig_stream_close(rig, agent->bulk);
    daemon_rig_stream_close(rig, agent->control);
}

static uint32_t agents_count(struct daemon_rig *rig)
{
    struct serve_counts counts;

    serve_counts(rig->serve, &counts);
    return counts.agents;
}

static void an_agent_joins_and_is_told_its_set(void **state)
{
    struct daemon_rig *rig = *state;
    struct agent agent = {0};
    const Pb__Node *node;

    join(rig, &agent, "n1");
    DAEMON_RIG_UNTIL(rig,
                     core_nodes(rig->core, &node, 1) == 1 && node->seen == PB__NODE__SEEN__HEALTHY);
    assert_non_null(core_node_link(rig->core, "n1"));
    leave(rig, &agent);
    DAEMON_RIG_UNTIL(rig, agents_count(rig) == 0);
    assert_null(core_node_link(rig->core, "n1"));
}

static void an_agent_speaks_for_its_own_node_only(void **state)
{
    struct daemon_rig *rig = *state;
    struct agent agent = {0};

    agent.client = daemon_rig_client(rig, "agent", "n1", NULL);
    say_hello(&agent, "n2", "one");
    DAEMON_RIG_UNTIL(rig, agent.control->closed);
    assert_int_not_equal(agent.control->st, STATUS_OK);
    leave(rig, &agent);
    agent.bulk = NULL;
    say_hello(&agent, "n1", "one");
    DAEMON_RIG_UNTIL(rig, find_welcome(&agent));
    bulk_hello(&agent, "n2", "one");
    DAEMON_RIG_UNTIL(rig, agent.bulk->closed);
    assert_int_equal(agent.bulk->st, STATUS_DENIED);
    leave(rig, &agent);
}

static void users_may_not_be_agents_nor_agents_users(void **state)
{
    struct daemon_rig *rig = *state;
    struct agent agent = {.client = daemon_rig_admin(rig)};
    Pb__ListNodesRequest nodes = PB__LIST_NODES_REQUEST__INIT;

    say_hello(&agent, "root", "one");
    DAEMON_RIG_UNTIL(rig, agent.control->closed);
    assert_int_equal(agent.control->st, STATUS_DENIED);
    leave(rig, &agent);
    assert_int_equal(daemon_rig_call(daemon_rig_client(rig, "agent", "n1", NULL), "ListNodes",
                                     &nodes.base, NULL, NULL),
                     STATUS_DENIED);
}

static void bulk_without_control_waits_for_its_turn(void **state)
{
    struct daemon_rig *rig = *state;
    struct agent agent = {.client = daemon_rig_client(rig, "agent", "n1", NULL)};

    bulk_hello(&agent, "n1", "one");
    DAEMON_RIG_UNTIL(rig, agent.bulk->closed);
    assert_int_equal(agent.bulk->st, STATUS_UNAVAILABLE);
    daemon_rig_stream_close(rig, agent.bulk);
}

static void bulk_ends_with_control(void **state)
{
    struct daemon_rig *rig = *state;
    struct agent agent = {0};

    join(rig, &agent, "n1");
    daemon_rig_stream_close(rig, agent.control);
    DAEMON_RIG_UNTIL(rig, agent.bulk->closed);
    assert_int_equal(agent.bulk->st, STATUS_UNAVAILABLE);
    daemon_rig_stream_close(rig, agent.bulk);
}

/* --- logs */

/* A job that the scheduler has put on n1. */
static int64_t place_job(struct daemon_rig *rig, struct rpc_client *admin)
{
    int64_t job = daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));

    DAEMON_RIG_UNTIL(rig, core_job(rig->core, job) && core_job(rig->core, job)->attempt == 1);
    return job;
}

static const Pb__LogAsk *last_ask(const struct agent *agent)
{
    for (size_t i = agent->bulk->count; i-- > 0;)
        if (AS(Pb__BulkDown, agent->bulk->messages[i])->log)
            return AS(Pb__BulkDown, agent->bulk->messages[i])->log;
    return NULL;
}

static void answer(struct agent *agent, uint64_t ask, int64_t offset, const char *data, bool end,
                   bool closed)
{
    Pb__BulkUp up = PB__BULK_UP__INIT;
    Pb__LogChunk chunk = PB__LOG_CHUNK__INIT;

    chunk.has_ask = chunk.has_offset = chunk.has_data = chunk.has_end = chunk.has_closed = true;
    chunk.ask = ask;
    chunk.offset = offset;
    chunk.data = (ProtobufCBinaryData){strlen(data), (uint8_t *)(uintptr_t)data};
    chunk.end = end;
    chunk.closed = closed;
    up.log = &chunk;
    rpc_stream_send(agent->bulk->stream, &up.base);
}

static struct daemon_rig_stream *open_logs(struct rpc_client *client, int64_t job, bool follow)
{
    Pb__LogsRequest request = PB__LOGS_REQUEST__INIT;

    request.has_job = request.has_follow = true;
    request.job = job;
    request.follow = follow;
    return daemon_rig_stream_open(client, &pb__control__descriptor, "Logs", &request.base);
}

static bool asked_after(const struct agent *agent, uint64_t ask)
{
    const Pb__LogAsk *last = last_ask(agent);

    return last && last->ask > ask;
}

static void a_log_comes_piece_by_piece_and_once(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    struct agent agent = {0};

    join(rig, &agent, "n1");
    int64_t job = place_job(rig, admin);
    struct daemon_rig_stream *logs = open_logs(admin, job, false);
    DAEMON_RIG_UNTIL(rig, asked_after(&agent, 0));
    uint64_t first = last_ask(&agent)->ask;
    assert_string_equal(last_ask(&agent)->key->role, "trainer");
    assert_int_equal(last_ask(&agent)->key->attempt, 1);
    answer(&agent, first, 0, "hello ", false, false);
    answer(&agent, first, 0, "hello ", false, false); /* late twin: spent */
    DAEMON_RIG_UNTIL(rig, asked_after(&agent, first));
    assert_int_equal(last_ask(&agent)->offset, 6);
    answer(&agent, last_ask(&agent)->ask, 6, "world", true, false);
    DAEMON_RIG_UNTIL(rig, logs->closed);
    assert_int_equal(logs->st, STATUS_OK);
    assert_int_equal(logs->count, 2);
    assert_memory_equal(AS(Pb__LogsReply, logs->messages[1])->data.data, "world", 5);
    daemon_rig_stream_close(rig, logs);
    leave(rig, &agent);
}

static void a_reader_that_leaves_cancels_its_ask(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    struct agent agent = {0};

    join(rig, &agent, "n1");
    struct daemon_rig_stream *logs = open_logs(admin, place_job(rig, admin), true);
    DAEMON_RIG_UNTIL(rig, asked_after(&agent, 0));
    uint64_t ask = last_ask(&agent)->ask;
    assert_true(last_ask(&agent)->follow);
    daemon_rig_stream_close(rig, logs);
    DAEMON_RIG_UNTIL(rig, last_ask(&agent)->cancel);
    assert_int_equal(last_ask(&agent)->ask, ask);
    leave(rig, &agent);
}

static void a_node_that_leaves_ends_its_logs(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    struct agent agent = {0};

    join(rig, &agent, "n1");
    int64_t job = place_job(rig, admin);
    struct daemon_rig_stream *logs = open_logs(admin, job, true);
    DAEMON_RIG_UNTIL(rig, asked_after(&agent, 0));
    leave(rig, &agent);
    DAEMON_RIG_UNTIL(rig, logs->closed);
    assert_int_equal(logs->st, STATUS_UNAVAILABLE);
    assert_non_null(strstr(logs->text, "n1"));
    daemon_rig_stream_close(rig, logs);
    logs = open_logs(admin, job, false);
    DAEMON_RIG_UNTIL(rig, logs->closed);
    assert_int_equal(logs->st, STATUS_UNAVAILABLE);
    daemon_rig_stream_close(rig, logs);
    logs = open_logs(admin, 99, false);
    DAEMON_RIG_UNTIL(rig, logs->closed);
    assert_int_equal(logs->st, STATUS_NOT_FOUND);
    daemon_rig_stream_close(rig, logs);
}

/* --- code */

static void digest_of(const char *bytes, size_t len, char *hex)
{
    unsigned char digest[32];

    assert_int_equal(EVP_Digest(bytes, len, digest, NULL, EVP_sha256(), NULL), 1);
    text_to_hex(digest, sizeof(digest), hex);
}

static struct daemon_rig_stream *put_code(struct daemon_rig *rig, struct rpc_client *client,
                                          const char *digest, const char *bytes, size_t len)
{
    struct daemon_rig_stream *put =
        daemon_rig_stream_open(client, &pb__control__descriptor, "PutCode", NULL);

    for (size_t at = 0; at < len; at += 1 << 20) {
        Pb__PutCodeRequest piece = PB__PUT_CODE_REQUEST__INIT;
        size_t size = len - at < (1 << 20) ? len - at : 1 << 20;
        piece.digest = at == 0 ? (char *)digest : NULL;
        piece.has_data = true;
        piece.data = (ProtobufCBinaryData){size, (uint8_t *)(uintptr_t)(bytes + at)};
        rpc_stream_send(put->stream, &piece.base);
    }
    rpc_stream_end_sending(put->stream);
    DAEMON_RIG_UNTIL(rig, put->closed);
    return put;
}

static void code_goes_up_once_and_down_whole(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    struct rpc_client *agent = daemon_rig_client(rig, "agent", "n1", NULL);
    size_t len = (3 << 20) + 17, got = 0;
    char *bytes = mem_alloc(len), digest[65];
    Pb__CodeAsk ask = PB__CODE_ASK__INIT;

    memset(bytes, 'x', len);
    digest_of(bytes, len, digest);
    struct daemon_rig_stream *put = put_code(rig, admin, digest, bytes, len);
    assert_int_equal(put->st, STATUS_OK);
    assert_false(AS(Pb__PutCodeReply, put->messages[0])->had_it);
    assert_int_equal(AS(Pb__PutCodeReply, put->messages[0])->bytes, len);
    daemon_rig_stream_close(rig, put);
    put = put_code(rig, admin, digest, bytes, len);
    assert_int_equal(put->st, STATUS_OK);
    assert_true(AS(Pb__PutCodeReply, put->messages[0])->had_it);
    daemon_rig_stream_close(rig, put);
    ask.digest = digest;
    struct daemon_rig_stream *fetch =
        daemon_rig_stream_open(agent, &pb__agents__descriptor, "FetchCode", &ask.base);
    DAEMON_RIG_UNTIL(rig, fetch->closed);
    assert_int_equal(fetch->st, STATUS_OK);
    for (size_t i = 0; i < fetch->count; i++)
        got += AS(Pb__CodeChunk, fetch->messages[i])->data.len;
    assert_int_equal(got, len);
    daemon_rig_stream_close(rig, fetch);
    mem_free(bytes);
}

static void code_that_does_not_match_is_refused(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    struct rpc_client *agent = daemon_rig_client(rig, "agent", "n1", NULL);
    char digest[65];
    Pb__CodeAsk ask = PB__CODE_ASK__INIT;

    digest_of("other", 5, digest);
    struct daemon_rig_stream *put = put_code(rig, admin, digest, "bytes", 5);
    assert_int_equal(put->st, STATUS_DATA_LOSS);
    daemon_rig_stream_close(rig, put);
    put = put_code(rig, admin, "../../etc/passwd", "bytes", 5);
    assert_int_equal(put->st, STATUS_INVALID);
    daemon_rig_stream_close(rig, put);
    assert_int_equal(fake_store_count(rig->store, CHANGE_CODE), 0);
    ask.digest = digest;
    struct daemon_rig_stream *fetch =
        daemon_rig_stream_open(agent, &pb__agents__descriptor, "FetchCode", &ask.base);
    DAEMON_RIG_UNTIL(rig, fetch->closed);
    assert_int_equal(fetch->st, STATUS_NOT_FOUND);
    daemon_rig_stream_close(rig, fetch);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, daemon_rig_setup, daemon_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_agent_joins_and_is_told_its_set),
        TEST(an_agent_speaks_for_its_own_node_only),
        TEST(users_may_not_be_agents_nor_agents_users),
        TEST(bulk_without_control_waits_for_its_turn),
        TEST(bulk_ends_with_control),
        TEST(a_log_comes_piece_by_piece_and_once),
        TEST(a_reader_that_leaves_cancels_its_ask),
        TEST(a_node_that_leaves_ends_its_logs),
        TEST(code_goes_up_once_and_down_whole),
        TEST(code_that_does_not_match_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
