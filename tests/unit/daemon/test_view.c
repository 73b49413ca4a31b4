/* test_view.c - who sees values of variables, and which jobs pass a filter. */
#include "daemon/view.h"
#include "tests/support/daemon_rig.h"
#include "tests/unit/unit.h"

static struct identity somebody(unsigned role, const char *projects)
{
    struct identity who = {.roles = role};

    snprintf(who.projects, sizeof(who.projects), "%s", projects);
    return who;
}

static void values_are_for_admins_and_the_project(void **state)
{
    struct identity admin = somebody(IDENTITY_ADMIN, ""),
                    mine = somebody(IDENTITY_SUBMITTER, "nlp"),
                    other = somebody(IDENTITY_SUBMITTER, "vision"),
                    viewer = somebody(IDENTITY_VIEWER, "*");
    Pb__Job job = PB__JOB__INIT;

    (void)state;
    job.spec = daemon_rig_spec("a", "nlp");
    assert_true(view_shows_env(&admin, &job) && view_shows_env(&mine, &job));
    assert_false(view_shows_env(&other, &job) || view_shows_env(&viewer, &job) ||
                 view_shows_env(NULL, &job));
    pb__job_spec__free_unpacked(job.spec, NULL);
}

static void filters_hold_all_at_once(void **state)
{
    Pb__Job job = PB__JOB__INIT;
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    Pb__Job__State running = PB__JOB__STATE__RUNNING;
    int64_t id = 7;

    (void)state;
    job.id = 7;
    job.state = PB__JOB__STATE__RUNNING;
    job.spec = daemon_rig_spec("a", "nlp");
    assert_true(view_job_matches(NULL, &job) && view_job_matches(&filter, &job));
    filter.project = "nlp";
    filter.name = "a";
    filter.ids = &id;
    filter.states = &running;
    filter.n_ids = filter.n_states = 1;
    filter.active = true;
    assert_true(view_job_matches(&filter, &job));
    job.state = PB__JOB__STATE__FAILED;
    assert_false(view_job_matches(&filter, &job));
    job.state = PB__JOB__STATE__RUNNING;
    filter.name = "b";
    assert_false(view_job_matches(&filter, &job));
    pb__job_spec__free_unpacked(job.spec, NULL);
}

static void a_copy_hides_and_the_row_keeps(void **state)
{
    struct daemon_rig *rig = *state;
    struct arena *arena = arena_create(1 << 20);
    Pb__Job job = PB__JOB__INIT;

    job.spec = daemon_rig_spec("a", "nlp");
    Pb__Job *copy = view_job(arena, rig->core, NULL, &job, false);
    assert_string_equal(copy->spec->roles[0]->env[0]->name, "TOKEN");
    assert_null(copy->spec->roles[0]->env[0]->value);
    assert_string_equal(job.spec->roles[0]->env[0]->value, "secret");
    copy = view_job(arena, rig->core, NULL, &job, true);
    assert_int_equal(copy->spec->roles[0]->n_env, 0);
    assert_int_equal(copy->spec->roles[0]->n_command, 0);
    arena_destroy(arena);
    pb__job_spec__free_unpacked(job.spec, NULL);
}

static void an_old_pass_is_not_ready(void **state)
{
    struct daemon_rig *rig = *state;
    struct arena *arena = arena_create(1 << 20);
    struct core_health health;
    Pb__StatusReply now = PB__STATUS_REPLY__INIT, later = PB__STATUS_REPLY__INIT;

    DAEMON_RIG_UNTIL(rig, (core_health(rig->core, &health), health.last_pass_us != 0));
    struct view_limits limits = {.now_us = health.last_pass_us, .pass_ms_max = 1000};
    view_status(arena, rig->core, &limits, &now);
    assert_true(now.ready);
    limits.now_us += 2000000;
    view_status(arena, rig->core, &limits, &later);
    assert_false(later.ready);
    arena_destroy(arena);
}

#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, daemon_rig_setup, daemon_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_for_admins_and_the_project),
        cmocka_unit_test(filters_hold_all_at_once),
        RIG_TEST(a_copy_hides_and_the_row_keeps),
        RIG_TEST(an_old_pass_is_not_ready),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
