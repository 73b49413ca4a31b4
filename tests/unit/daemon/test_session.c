/* test_session.c - what agents report: many failures at once, late news, devices that come and go.
 */
#include "base/log.h"
#include "daemon/hub.h"
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

enum { NODES = 250, EACH = 8 };

static char *long_text(size_t len)
{
    char *text = mem_alloc(len + 1);

    memset(text, 'x', len);
    text[len] = '\0';
    return text;
}

/* Every worker of the node, in one report. */
static void node_says(struct rig_node *node, int64_t job, Pb__ActualWorker__State state,
                      const char *message, const char *traceback)
{
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    Pb__AgentUp up = PB__AGENT_UP__INIT;
    Pb__ActualWorker workers[EACH], *list[EACH];
    Pb__WorkerKey keys[EACH];

    for (size_t i = 0; i < node->desired->n_workers; i++) {
        pb__worker_key__init(&keys[i]);
        pb__actual_worker__init(&workers[i]);
        keys[i] = *node->desired->workers[i]->key;
        keys[i].has_incarnation = true;
        keys[i].incarnation = 1;
        assert_true(keys[i].job == job);
        workers[i].key = &keys[i];
        workers[i].has_state = workers[i].has_exit_code = true;
        workers[i].state = state;
        workers[i].exit_code = state == PB__ACTUAL_WORKER__STATE__EXITED ? 3 : 0;
        workers[i].has_fail_us = true;
        workers[i].fail_us = 1000 + keys[i].rank;
        workers[i].message = (char *)(uintptr_t)message;
        workers[i].traceback = (char *)(uintptr_t)traceback;
        list[i] = &workers[i];
    }
    report.workers = list;
    report.n_workers = node->desired->n_workers;
    up.has_seq = true;
    up.seq = ++node->seq;
    up.report = &report;
    core_agent_up(node->rig->core, &node->link, &up);
}

static struct hub *hub_of(struct rig *rig)
{
    return (struct hub *)rig->core;
}

/* 2,000 workers of 250 agents fail in one instant, each with all that it may say: what waits for
 * its turn and what is stored is bounded, the first failure is shown whole, the job goes on. */
static void m23_mass_failure_is_bounded(void **state)
{
    struct rig rig;
    SCOPED_TEXT char *message = long_text(5000);
    SCOPED_TEXT char *traceback = long_text(20000);
    char name[16];

    (void)state;
    log_setup("test", LOG_ERROR, -1);
    rig_init(&rig, 1);
    for (int i = 0; i < NODES; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        rig_node_join(&rig, name, EACH);
        if (i % 40 == 0)
            rig_live(&rig, 1);
    }
    int64_t job = rig_submit(&rig, NODES * EACH, NULL);
    for (size_t i = 0; i < NODES; i++)
        node_says(rig.nodes[i], job, PB__ACTUAL_WORKER__STATE__RUNNING, NULL, NULL);
    rig_run(&rig, 500);
    assert_int_equal(rig_state(&rig, job), PB__JOB__STATE__RUNNING);
    for (size_t i = 0; i < NODES; i++) {
        node_says(rig.nodes[i], job, PB__ACTUAL_WORKER__STATE__EXITED, message, traceback);
        assert_true(hub_of(&rig)->traceback_bytes <= (size_t)16 << 20);
    }
    rig_run(&rig, 2000);
    const Pb__Job *row = core_job(rig.core, job);
    assert_true(row->state != PB__JOB__STATE__RUNNING);
    assert_int_equal(row->first_failure->rank, 0);
    assert_int_equal(strlen(row->first_failure->message), 4096);
    assert_int_equal(strlen(row->first_failure->traceback), 16384);
    const Pb__Attempt *attempt = core_attempt(rig.core, job, 1);
    assert_true(attempt->has_ended_us);
    assert_true(pb__attempt__get_packed_size(attempt) < NODES * EACH * (size_t)700);
    assert_int_equal(hub_of(&rig)->traceback_bytes, 0);
    rig_fini(&rig);
}

/* M20: what an earlier incarnation did, told late, is no news of the one that runs. */
static void m20_late_news_of_an_earlier_incarnation_is_dropped(void **state)
{
    struct rig rig;
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;
    Pb__ActualWorker worker = PB__ACTUAL_WORKER__INIT, *list[] = {&worker};
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    Pb__AgentUp up = PB__AGENT_UP__INIT;

    (void)state;
    log_setup("test", LOG_ERROR, -1);
    rig_init(&rig, 1);
    struct rig_node *node = rig_node_join(&rig, "n1", 2);
    int64_t job = rig_submit(&rig, 1, NULL);
    key.has_job = key.has_attempt = true;
    key.job = job;
    key.role = (char *)(uintptr_t) "main";
    key.attempt = 1;
    key.has_incarnation = worker.has_state = worker.has_exit_code = up.has_seq = true;
    worker.key = &key;
    report.workers = list;
    report.n_workers = 1;
    up.report = &report;
    for (uint32_t i = 0; i < 3; i++) { /* its own, an earlier one, one that was never granted */
        key.incarnation = i == 0 ? 1 : i == 1 ? 0 : 2;
        worker.state = i ? PB__ACTUAL_WORKER__STATE__EXITED : PB__ACTUAL_WORKER__STATE__RUNNING;
        worker.exit_code = i ? 9 : 0;
        up.seq = ++node->seq;
        core_agent_up(rig.core, &node->link, &up);
        rig_run(&rig, 50);
        assert_int_equal(rig_state(&rig, job), PB__JOB__STATE__RUNNING);
        const Pb__ActualWorker *known = core_worker(rig.core, job, "main", 0, 1);
        assert_true(i == 2 || known->key->incarnation == 1);
    }
    rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(m23_mass_failure_is_bounded),
        cmocka_unit_test(m20_late_news_of_an_earlier_incarnation_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
