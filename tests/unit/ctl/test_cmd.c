/* test_cmd.c - verbs against a fake daemon: exit codes, tables, restarts in the middle. */
#include "tests/unit/ctl/fake.h"

static void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no '%s' in:\n%s", part, text);
}

static const char job_yaml[] = "name: alpha\nroles: [{name: r, command: [x]}]\n";

static const char *job_file(struct fake *fake, const char *name, const char *text)
{
    char *path = fake->paths[fake->paths_next++ % COUNT_OF(fake->paths)];
    snprintf(path, sizeof fake->paths[0], "%s/%s", fake->dir, name);
    unit_write(path, text);
    return path;
}

static void submit_says_the_id_and_retries_without_doing_it_twice(void **state)
{
    struct fake *fake = *state;
    fake->away = 2;
    assert_int_equal(FAKE_RUN(fake, "submit", job_file(fake, "a.yaml", job_yaml)), VERB_OK);
    assert_string_equal(fake->out, "submitted job 1 alpha\n");
    assert_int_equal(fake->jobs, 1);
    assert_int_equal(fake->chunks, 3);
}

static void submit_sends_nothing_when_a_file_is_wrong(void **state)
{
    struct fake *fake = *state;
    const char *good = job_file(fake, "a.yaml", job_yaml);
    const char *bad = job_file(fake, "b.yaml", "nane: x\nroles: [{name: r, command: [x]}]\n");
    assert_int_equal(FAKE_RUN(fake, "submit", good, bad), VERB_USAGE);
    expect_in(fake->err, "b.yaml:1:1: unknown field 'nane' in JobSpec; did you mean 'name'?\n");
    expect_in(fake->err, "nothing was submitted");
    assert_int_equal(fake->calls, 0);
}

static void submit_tells_which_files_were_refused(void **state)
{
    struct fake *fake = *state;
    const char *file = job_file(fake, "a.yaml", job_yaml);
    assert_int_equal(FAKE_RUN(fake, "submit", "-q", file), VERB_OK);
    assert_string_equal(fake->out, "1\n");
    assert_int_equal(FAKE_RUN(fake, "submit", file, "--set", "name=unwanted"), VERB_REFUSED);
    expect_in(fake->err, "a.yaml: project 'default' is not one that you may use\n");
}

static void submit_follows_over_a_restart_to_the_end(void **state)
{
    struct fake *fake = *state;
    const char *file = job_file(fake, "a.yaml", job_yaml);
    assert_int_equal(FAKE_RUN(fake, "submit", file, "-f"), VERB_NEGATIVE);
    assert_int_equal(fake->watches, 2);
    assert_int_equal(fake->watch_after, 7);
    expect_in(fake->out, "RUNNING  news\n");
    expect_in(fake->out, "FAILED  news\n");
    assert_null(strstr(strstr(fake->out, "RUNNING  news") + 1, "RUNNING  news"));
    expect_in(fake->out, "loss");
    expect_in(fake->out, "job 1 FAILED after");
}

static void submit_waits_for_all(void **state)
{
    struct fake *fake = *state;
    const char *file = job_file(fake, "a.yaml", job_yaml);
    fake->lists_to_end = 3;
    assert_int_equal(FAKE_RUN(fake, "submit", file, file, "--wait"), VERB_OK);
    expect_in(fake->out, "job 2 SUCCEEDED");
    fake->states[0] = PB__JOB__STATE__RUNNING;
}

static void dry_run_stores_nothing(void **state)
{
    struct fake *fake = *state;
    assert_int_equal(FAKE_RUN(fake, "submit", job_file(fake, "a.yaml", job_yaml), "--dry-run"),
                     VERB_OK);
    assert_string_equal(fake->out, "1 job is checked; nothing is stored\n");
    assert_int_equal(fake->jobs, 0);
    const char *large = job_file(fake, "b.yaml", "name: large\nroles: [{name: r, command: [x]}]\n");
    assert_int_equal(FAKE_RUN(fake, "submit", large, "--dry-run", "-o", "json"), VERB_OK);
    expect_in(fake->out, "\"results\": [");
    expect_in(fake->err, "b.yaml: fits nowhere: no node is that large\n");
    assert_int_equal(FAKE_RUN(fake, "submit", large), VERB_OK);
    expect_in(fake->err, "b.yaml: fits nowhere: no node is that large\n");
}

static void jobs_prints_a_table_or_the_reply(void **state)
{
    struct fake *fake = *state;
    fake_add(fake, NULL, "beta \x1b[2J");
    assert_int_equal(FAKE_RUN(fake, "jobs"), VERB_OK);
    assert_string_equal(
        fake->out, "ID  NAME       PROJECT  STATE    REASON      STEP  WORKERS  RESTARTS  AGE\n"
                   " 1  beta ?[2J  default  RUNNING  WORKERS_UP   120        0         0    -\n");
    assert_int_equal(FAKE_RUN(fake, "jobs", "-o", "json"), VERB_OK);
    expect_in(fake->out, "\"id\": \"1\",");
    assert_int_equal(FAKE_RUN(fake, "jobs", "bet"), VERB_OK); /* the start of a name */
    expect_in(fake->out, " 1  beta");
    assert_int_equal(FAKE_RUN(fake, "jobs", "nosuch"), VERB_REFUSED);
    expect_in(fake->err, "no job is called 'nosuch'");
    assert_int_equal(FAKE_RUN(fake, "jobs", "1", "999"), VERB_REFUSED);
    expect_in(fake->out, " 1  beta");
    expect_in(fake->err, "no job 999\n");
    assert_int_equal(FAKE_RUN(fake, "jobs", "-o", "jsom"), VERB_USAGE);
    expect_in(fake->err, "did you mean 'json'?");
    assert_int_equal(FAKE_RUN(fake, "jobs", "--state", "runing"), VERB_USAGE);
    assert_int_equal(FAKE_RUN(fake, "jobs", "--pags"), VERB_USAGE);
}

static void show_names_the_first_failure(void **state)
{
    struct fake *fake = *state;
    fake_add(fake, NULL, "gamma");
    assert_int_equal(FAKE_RUN(fake, "show", "gam"), VERB_OK);
    expect_in(fake->out, "first failure: attempt 2, trainer rank 1 on n?[31m1, exit 3\n");
    expect_in(fake->out, "  Traceback:\n    ValueError: x\n");
    expect_in(fake->out, "4242  EXITED  SIGKILL    41        -");
    expect_in(fake->out, "-  EXITED  -           -        -"); /* never ran: nothing is known */
    expect_in(fake->out, "restarts    0 used, 3 left of 3\n");
    assert_int_equal(FAKE_RUN(fake, "show", "delta"), VERB_REFUSED);
    expect_in(fake->err, "no job is called 'delta'");
    assert_int_equal(FAKE_RUN(fake, "show", "gamme"), VERB_REFUSED);
    expect_in(fake->err, "no job is called 'gamme'; did you mean 'gamma'?");
    assert_int_equal(FAKE_RUN(fake, "show"), VERB_USAGE);
    expect_in(fake->err, "show: an operand is missing: rondoctl show JOB");
    assert_int_equal(FAKE_RUN(fake, "show", "1", "2"), VERB_USAGE);
    expect_in(fake->err, "show: '2' is one operand too many: rondoctl show JOB");
}

static void cancel_and_hold_go_through_all_and_return_the_worst(void **state)
{
    struct fake *fake = *state;
    fake_add(fake, NULL, "a");
    assert_int_equal(FAKE_RUN(fake, "cancel", "77", "1"), VERB_REFUSED);
    expect_in(fake->out, "job 1 is being cancelled, now CANCELLED\n");
    expect_in(fake->err, "job 77 does not exist");
    assert_int_equal(FAKE_RUN(fake, "hold", "1"), VERB_OK);
    assert_int_equal(FAKE_RUN(fake, "release", "1"), VERB_OK);
    assert_int_equal(FAKE_RUN(fake, "cancel"), VERB_USAGE);
    fake->impossible = true; /* scripts repeat themselves */
    fake->states[0] = PB__JOB__STATE__HELD;
    assert_int_equal(FAKE_RUN(fake, "hold", "1"), VERB_OK);
    assert_string_equal(fake->out, "job 1 is HELD already\n");
    fake->states[0] = PB__JOB__STATE__RUNNING;
    assert_int_equal(FAKE_RUN(fake, "release", "1"), VERB_OK);
    assert_string_equal(fake->out, "job 1 is RUNNING already\n");
    fake->states[0] = PB__JOB__STATE__FAILED;
    assert_int_equal(FAKE_RUN(fake, "release", "1"), VERB_REFUSED);
    assert_int_equal(FAKE_RUN(fake, "cancel", "1", "-o", "json"), VERB_REFUSED);
    expect_in(fake->out, "\"state\": \"FAILED\"");
    expect_in(fake->err, "is not possible");
}

static void logs_go_on_where_they_broke_off(void **state)
{
    struct fake *fake = *state;
    fake_add(fake, NULL, "a");
    assert_int_equal(FAKE_RUN(fake, "logs", "1", "-f"), VERB_OK);
    assert_memory_equal(fake->out, "line 1\nline\x00 2\nline 3\n", 22);
    assert_int_equal(fake->logs, 2);
    assert_int_equal(fake->logs_offset, 9);
}

static void logs_say_what_a_job_waits_for(void **state)
{
    struct fake *fake = *state;
    fake_add(fake, NULL, "a");
    fake->states[0] = PB__JOB__STATE__QUEUED;
    fake->lists_to_end = 3;
    assert_int_equal(FAKE_RUN(fake, "logs", "1", "-f"), VERB_OK);
    expect_in(fake->err, "job 1 waits: every worker runs\n");
    assert_null(strstr(strstr(fake->err, "waits: ") + 1, "waits: "));
}

static void metrics_keep_integers_exactly(void **state)
{
    struct fake *fake = *state;
    fake_add(fake, NULL, "a");
    assert_int_equal(FAKE_RUN(fake, "metrics", "1", "--points"), VERB_OK);
    expect_in(fake->out, "loss 0 3 0.1\n");
    expect_in(fake->out, "tokens 0 2 9007199254740993\n");
    assert_int_equal(FAKE_RUN(fake, "metrics", "1"), VERB_OK);
    expect_in(fake->out,
              "loss    -        0        0       3     3   0.1     0.1               3.5\n");
    expect_in(fake->out, "30      30  9007199254740993\n");
    assert_int_equal(FAKE_RUN(fake, "metrics", "1", "los"), VERB_REFUSED);
    expect_in(fake->err, "job 1 has no points of 'los', but of loss, tokens; did you mean 'loss'?");
    assert_int_equal(FAKE_RUN(fake, "metrics", "1", "loss", "--rank", "7"), VERB_OK);
    expect_in(fake->out, "no points yet\n"); /* it runs: they may come */
    fake->states[0] = PB__JOB__STATE__SUCCEEDED;
    assert_int_equal(FAKE_RUN(fake, "metrics", "1", "loss", "--rank", "7"), VERB_REFUSED);
    expect_in(fake->err, "job 1 has points, such as role -, rank 0, attempt 0, but none of");
    assert_int_equal(FAKE_RUN(fake, "metrics", "99"), VERB_REFUSED);
    expect_in(fake->err, "no job 99\n");
    assert_int_equal(FAKE_RUN(fake, "metrics", "1", "loss", "-p"), VERB_OK);
    expect_in(fake->out, "* loss");
}

static void events_follow_by_token(void **state)
{
    struct fake *fake = *state;
    assert_int_equal(FAKE_RUN(fake, "events"), VERB_OK);
    expect_in(fake->out, "job 1 QUEUED -> STARTING  PLACED: nodes reserved\n");
    assert_int_equal(FAKE_RUN(fake, "events", "-f"), VERB_REFUSED); /* the fake ends it so */
    expect_in(fake->out, "RUNNING  news\n");
    expect_in(fake->out, "FAILED  news\n");
    assert_int_equal(fake->watch_after, 7);
    assert_int_equal(FAKE_RUN(fake, "events", "--node", "node-9"), VERB_REFUSED);
    expect_in(fake->err, "no node 'node-9'; did you mean 'node-1'?\n");
    assert_int_equal(FAKE_RUN(fake, "events", "--node", "node-1"), VERB_OK);
}

static void nodes_checkpoints_and_status_print(void **state)
{
    struct fake *fake = *state;
    assert_int_equal(FAKE_RUN(fake, "nodes"), VERB_OK);
    expect_in(fake->out, "node-1  HEALTHY  IN_SERVICE  1 nvidia, 2 cpu");
    expect_in(fake->out, "  SINCE  ");
    assert_int_equal(FAKE_RUN(fake, "cordon", "node-1", "--why", "fan"), VERB_OK);
    assert_string_equal(fake->out, "node node-1 is CORDONED\n");
    assert_int_equal(FAKE_RUN(fake, "uncordon", "node-1"), VERB_OK);
    assert_int_equal(FAKE_RUN(fake, "checkpoints", "1"), VERB_OK);
    expect_in(fake->out, "COMMITTED");
    assert_int_equal(FAKE_RUN(fake, "status"), VERB_NEGATIVE);
    expect_in(fake->out, "  ! database: away for 3 s\n");
    assert_int_equal(FAKE_RUN(fake, "version", "--daemon"), VERB_OK);
    expect_in(fake->out, "rondod 9.9\n");
    assert_int_equal(FAKE_RUN(fake, "version", "--daemon", "-o", "json"), VERB_OK);
    assert_string_equal(fake->out,
                        "{\n  \"rondoctl\": \"" RONDO_VERSION "\",\n  \"rondod\": \"9.9\"\n}\n");
}

static void failures_have_their_exit_codes(void **state)
{
    struct fake *fake = *state;
    fake->refuse = STATUS_DENIED;
    assert_int_equal(FAKE_RUN(fake, "nodes"), VERB_REFUSED);
    expect_in(fake->err, "not allowed: no");
    fake->refuse = STATUS_INTERNAL;
    assert_int_equal(FAKE_RUN(fake, "nodes"), VERB_BROKEN);
    fake->refuse = STATUS_UNAVAILABLE;
    assert_int_equal(FAKE_RUN(fake, "nodes", "--timeout", "300ms"), VERB_UNREACHED);
    expect_in(fake->err, "cannot reach the daemon at unix:");
    assert_int_equal(FAKE_RUN(fake, "nodes", "--timeout", "soon"), VERB_USAGE);
}

#define WITH_FAKE(test) cmocka_unit_test_setup_teardown(test, fake_setup, fake_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FAKE(submit_says_the_id_and_retries_without_doing_it_twice),
        WITH_FAKE(submit_sends_nothing_when_a_file_is_wrong),
        WITH_FAKE(submit_tells_which_files_were_refused),
        WITH_FAKE(submit_follows_over_a_restart_to_the_end),
        WITH_FAKE(submit_waits_for_all),
        WITH_FAKE(dry_run_stores_nothing),
        WITH_FAKE(jobs_prints_a_table_or_the_reply),
        WITH_FAKE(show_names_the_first_failure),
        WITH_FAKE(cancel_and_hold_go_through_all_and_return_the_worst),
        WITH_FAKE(logs_go_on_where_they_broke_off),
        WITH_FAKE(logs_say_what_a_job_waits_for),
        WITH_FAKE(metrics_keep_integers_exactly),
        WITH_FAKE(events_follow_by_token),
        WITH_FAKE(nodes_checkpoints_and_status_print),
        WITH_FAKE(failures_have_their_exit_codes),
    };
    setenv("NO_COLOR", "1", 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("COLUMNS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
