/* test_status.c - the status endpoint over HTTP: health, metrics, JSON, events, and what it
 * refuses. */
#include "base/text.h"
#include "tests/support/daemon_rig.h"
#include "tests/unit/unit.h"

static void expect(struct daemon_rig *rig, const char *path, int code, const char *part)
{
    SCOPED_TEXT char *answer = daemon_rig_get(rig, path);
    char first[32];

    snprintf(first, sizeof(first), "HTTP/1.1 %d ", code);
    if (strncmp(answer, first, strlen(first)) != 0 || (part && !strstr(answer, part)))
        fail_msg("%s: %s", path, answer);
}

static void readyz_says_what_is_missing(void **state)
{
    struct daemon_rig *rig = *state;
    struct core_health health;

    DAEMON_RIG_UNTIL(rig, (core_health(rig->core, &health), health.last_pass_us != 0));
    expect(rig, "/healthz", 200, "true");
    expect(rig, "/readyz", 200, "\"ready\":true");
    fake_store_set_usable(rig->store, false);
    DAEMON_RIG_UNTIL(rig, (core_health(rig->core, &health), !health.store_usable));
    expect(rig, "/readyz", 503, "connection lost");
    expect(rig, "/healthz", 200, NULL);
    expect(rig, "/metrics", 200, "\nrondo_store_usable 0\n");
}

static void the_api_gives_the_messages_of_grpc(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);

    expect(rig, "/api/v1/jobs", 200, "{");
    daemon_rig_submit(admin, "request-1", daemon_rig_spec("curious", "default"));
    expect(rig, "/api/v1/jobs", 200, "curious");
    expect(rig, "/api/v1/jobs?state=RUNNING,SUCCEEDED", 200, NULL);
    expect(rig, "/api/v1/jobs?state=NOPE", 400, "state");
    expect(rig, "/api/v1/jobs?limit=-1", 400, NULL);
    expect(rig, "/api/v1/jobs/1", 200, "curious");
    expect(rig, "/api/v1/jobs/77", 404, "error");
    expect(rig, "/api/v1/nodes", 200, "{");
    expect(rig, "/api/v1/status", 200, "fake-cluster");
    expect(rig, "/", 200, "<html");
    expect(rig, "/metrics", 200, "rondo_jobs_queued 1");
}

static void secrets_are_not_shown(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);

    daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    SCOPED_TEXT char *answer = daemon_rig_get(rig, "/api/v1/jobs/1");
    assert_non_null(strstr(answer, "TOKEN"));
    assert_null(strstr(answer, "secret"));
}

static void it_only_reads_and_serves_no_files(void **state)
{
    struct daemon_rig *rig = *state;
    SCOPED_TEXT char *post =
        daemon_rig_http(rig, "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n"
                             "Content-Length: 4\r\nConnection: close\r\n\r\nbody");
    SCOPED_TEXT char *foreign = daemon_rig_http(
        rig, "GET /api/v1/jobs HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");

    assert_non_null(strstr(post, " 405 "));
    assert_non_null(strstr(foreign, " 403 "));
    expect(rig, "/../../etc/passwd", 404, "error");
    expect(rig, "/api/v1/jobs/../../../etc/passwd", 404, "error");
    expect(rig, "/%2e%2e/%2e%2e/etc/passwd", 404, "error");
}

static void a_huge_header_is_refused(void **state)
{
    struct daemon_rig *rig = *state;
    struct text request;

    text_init(&request, 0);
    text_add(&request, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Big: ");
    for (int i = 0; i < 60000; i++)
        text_add(&request, "x");
    text_add(&request, "\r\n\r\n");
    SCOPED_TEXT char *answer = daemon_rig_http(rig, text_get(&request));
    assert_true(answer[0] == '\0' || strstr(answer, " 431 ") || strstr(answer, " 413 "));
    text_fini(&request);
    expect(rig, "/healthz", 200, NULL);
}

/* The endpoint goes while a stream is open: the stream ends, nothing leaks. */
static void events_flow_with_ids(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);

    daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    expect(rig, "/events?after=x", 400, NULL);
    SCOPED_TEXT char *answer = daemon_rig_events(rig, "/events?after=-1", "caught-up");
    assert_non_null(strstr(answer, "text/event-stream"));
    assert_non_null(strstr(answer, "id: 1\nevent: job."));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, daemon_rig_setup, daemon_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(readyz_says_what_is_missing), TEST(the_api_gives_the_messages_of_grpc),
        TEST(secrets_are_not_shown),       TEST(it_only_reads_and_serves_no_files),
        TEST(a_huge_header_is_refused),    TEST(events_flow_with_ids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
