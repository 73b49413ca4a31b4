/* test_save_source.c - a checkpoint on one node's disk, a job that goes on on another one: who is
 * told to fetch what, with what ticket; what becomes of the copies. */
#include "rpc/ticket.h"
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

#define DIGEST "0123456789abcdef0123456789abcdef"

struct stand { /* a job of one worker that was on `from` and is being started on `to` */
    struct rig *rig;
    struct rig_node *from, *to;
    int64_t job, checkpoint;
};

static void policy(Pb__JobSpec *spec)
{
    spec->checkpoint->has_allow_node_vault = spec->checkpoint->has_verify = true;
    spec->checkpoint->allow_node_vault = true;
    spec->checkpoint->verify = false;
    spec->checkpoint->has_keep = true;
    spec->checkpoint->keep = 1;
    spec->restart->backoff_ms = 0;
}

static void set_admin(struct rig_node *node, Pb__Node__Admin admin)
{
    Pb__SetNodeRequest request = PB__SET_NODE_REQUEST__INIT;
    struct rig_answer answer;
    char id[80];

    snprintf(id, sizeof(id), "admin-%s-%d-0001", node->name, (int)admin);
    request.request_id = id;
    request.node = node->name;
    request.has_admin = true;
    request.admin = admin;
    rig_call(node->rig, &request.base, &answer);
    protobuf_c_message_free_unpacked(answer.reply, NULL);
}

static void stand_up(struct rig *rig, struct stand *stand)
{
    const Pb__Checkpoint *row = NULL;
    rig->node_vaults = true;
    rig->peer_port = 7500;
    struct rig_node *a = rig_node_join(rig, "n1", 1), *b = rig_node_join(rig, "n2", 1);
    stand->rig = rig;
    stand->job = rig_submit(rig, 1, policy);
    stand->from = rig_wants(a, stand->job, 0, PB__DESIRED_WORKER__WANT__RUN) ? a : b;
    stand->to = stand->from == a ? b : a;
    rig_say(stand->from, stand->job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say_part(stand->from, stand->job, 0, 1, 10, DIGEST, "main-0/layout.json");
    rig_say_sealed(stand->from);
    assert_true(core_checkpoints(rig->core, stand->job, &row, 1) > 0);
    stand->checkpoint = row->id;
    set_admin(stand->from, PB__NODE__ADMIN__CORDONED);
    rig_say(stand->from, stand->job, 0, 1, PB__ACTUAL_WORKER__STATE__EXITED, 1);
    rig_live(rig, 3000);
}

static const Pb__FetchSource *source(const struct stand *stand)
{
    assert_int_equal(rig_state(stand->rig, stand->job), PB__JOB__STATE__STARTING);
    assert_true(stand->to->launch->resume->fetch);
    assert_int_equal(stand->to->desired->n_fetches, 1);
    assert_int_equal(stand->to->desired->fetches[0]->n_sources, 1);
    return stand->to->desired->fetches[0]->sources[0];
}

static enum status open_ticket(const struct stand *stand, const char *node, const char *peer,
                               int64_t now_us)
{
    const Pb__FetchSource *said = source(stand);
    struct ticket_gate gate = {stand->from->peer_key, node, peer, now_us};
    struct ticket *ticket = NULL;
    enum status st = ticket_open(said->ticket.data, said->ticket.len, &gate, &ticket, NULL);

    if (st == STATUS_OK) {
        assert_true(ticket_covers(ticket, "manifest.json"));
        assert_true(ticket_covers(ticket, "main-0/layout.json"));
        assert_false(ticket_covers(ticket, "main-1/layout.json"));
    }
    ticket_close(ticket);
    return st;
}

static int64_t wall_us(const struct rig *rig)
{
    return loop_wall_us(&rig->process->loop);
}

static void bytes_that_are_served_are_fetched_by_another_node(void **state)
{
    struct stand stand;
    stand_up(*state, &stand);
    const Pb__FetchSource *said = source(&stand);
    assert_string_equal(said->node, stand.from->name);
    assert_int_equal(said->port, 7500);
    assert_int_equal(said->n_parts, 1);
    assert_string_equal(said->parts[0]->role, "main");
    assert_int_equal(stand.to->launch->resume->format, PB__CHECKPOINT__FORMAT__SHARDED);
}

static void the_ticket_is_for_that_node_and_for_a_while(void **state)
{
    struct stand stand;
    stand_up(*state, &stand);
    const char *from = stand.from->name, *to = stand.to->name;
    int64_t now = wall_us(stand.rig);
    assert_int_equal(open_ticket(&stand, from, to, now), STATUS_OK);
    assert_int_equal(open_ticket(&stand, from, from, now), STATUS_DENIED);
    assert_int_equal(open_ticket(&stand, to, to, now), STATUS_DENIED);
    assert_int_equal(open_ticket(&stand, from, to, now + 3600000000), STATUS_DEADLINE);
}

static void a_long_fetch_gets_a_new_ticket_before_the_old_one_ends(void **state)
{
    struct stand stand;
    stand_up(*state, &stand);
    for (int i = 0; i < 180; i++) { /* 45 minutes; bytes come, so the start goes on */
        Pb__ActualWorker worker = PB__ACTUAL_WORKER__INIT;
        worker.state = PB__ACTUAL_WORKER__STATE__PREPARING;
        worker.has_fetched = true;
        worker.fetched = (uint64_t)i + 1;
        rig_say_worker(stand.to, stand.job, 0, 2, &worker);
        rig_live(stand.rig, 15000);
    }
    assert_int_equal(open_ticket(&stand, stand.from->name, stand.to->name, wall_us(stand.rig)),
                     STATUS_OK);
}

static void the_next_daemon_signs_with_a_key_of_its_own(void **state)
{
    struct stand stand;
    unsigned char before[32];
    stand_up(*state, &stand);
    memcpy(before, stand.from->peer_key, sizeof(before));
    assert_memory_not_equal(before, stand.to->peer_key, sizeof(before));
    rig_crash(stand.rig);
    rig_start(stand.rig);
    rig_run(stand.rig, 20000);
    rig_node_rejoin(stand.from);
    rig_node_rejoin(stand.to);
    rig_live(stand.rig, 2000);
    assert_memory_not_equal(before, stand.from->peer_key, sizeof(before));
    assert_int_equal(open_ticket(&stand, stand.from->name, stand.to->name, wall_us(stand.rig)),
                     STATUS_OK);
}

/* A source that is away is named without an address, and told again once it is back. */
static void a_source_that_is_away_is_named(void **state)
{
    struct stand stand;
    stand_up(*state, &stand);
    rig_node_leave(stand.from);
    rig_live(stand.rig, 1000);
    rig_node_leave(stand.to);
    rig_node_rejoin(stand.to);
    const Pb__FetchSource *said = source(&stand);
    assert_string_equal(said->node, stand.from->name);
    assert_null(said->address);
    assert_int_equal(said->ticket.len, 0);
    rig_node_rejoin(stand.from);
    rig_live(stand.rig, 1000);
    assert_int_equal(source(&stand)->port, 7500);
}

static void what_has_come_is_a_copy_and_deleted_with_the_rest(void **state)
{
    struct stand stand;
    const Pb__Checkpoint *rows[4];
    stand_up(*state, &stand);
    rig_say_copy(stand.to, stand.checkpoint, 0);
    rig_live(stand.rig, 1000);
    assert_int_equal(stand.to->desired->n_fetches, 0);
    assert_true(core_checkpoints(stand.rig->core, stand.job, rows, 4) > 0);
    assert_int_equal(rows[0]->n_copies, 2);
    rig_say(stand.to, stand.job, 0, 2, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say_part(stand.to, stand.job, 0, 2, 20, DIGEST, "main-0/layout.json");
    rig_say_sealed(stand.to);
    rig_live(stand.rig, 1000);
    assert_int_equal(stand.from->desired->n_deletes, 1);
    assert_int_equal(stand.to->desired->n_deletes, 1);
    rig_say_deleted(stand.from);
    assert_int_equal(stand.to->desired->n_deletes, 1);
    rig_say_deleted(stand.to);
    rig_live(stand.rig, 1000);
    assert_int_equal(stand.to->desired->n_deletes, 0);
    size_t count = core_checkpoints(stand.rig->core, stand.job, rows, 4);
    for (size_t i = 0; i < count; i++)
        if (rows[i]->id == stand.checkpoint)
            assert_int_equal(rows[i]->state, PB__CHECKPOINT__STATE__DELETED);
}

/* Of a fetch that was not finished nobody has told: it is deleted all the same. */
static void what_has_come_half_is_deleted_too(void **state)
{
    struct stand stand;
    stand_up(*state, &stand);
    set_admin(stand.to, PB__NODE__ADMIN__CORDONED);
    set_admin(stand.from, PB__NODE__ADMIN__IN_SERVICE);
    rig_say_class(stand.to, stand.job, 0, 2, PB__REASON__CODE__SOURCE_LOST);
    rig_live(stand.rig, 5000);
    assert_int_equal(stand.to->desired->n_fetches, 0);
    rig_say(stand.from, stand.job, 0, 3, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say_part(stand.from, stand.job, 0, 3, 20, DIGEST, "main-0/layout.json");
    rig_say_sealed(stand.from);
    rig_live(stand.rig, 1000);
    assert_int_equal(stand.from->desired->n_deletes, 1);
    assert_int_equal(stand.to->desired->n_deletes, 1);
}

static void a_job_whose_node_is_away_says_which_and_why(void **state)
{
    struct stand stand;
    stand_up(*state, &stand);
    rig_node_leave(stand.from);
    rig_say_class(stand.to, stand.job, 0, 2, PB__REASON__CODE__SOURCE_LOST);
    rig_live(stand.rig, 5000);
    assert_int_equal(rig_state(stand.rig, stand.job), PB__JOB__STATE__QUEUED);
    const Pb__Reason *wait = core_job_wait(stand.rig->core, stand.job);
    assert_non_null(wait);
    assert_non_null(strstr(wait->text, stand.from->name));
    assert_non_null(strstr(wait->text, "main-0 of checkpoint"));
    rig_node_rejoin(stand.from);
    rig_live(stand.rig, 2000);
    assert_int_equal(rig_state(stand.rig, stand.job), PB__JOB__STATE__STARTING);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(bytes_that_are_served_are_fetched_by_another_node),
        T(the_ticket_is_for_that_node_and_for_a_while),
        T(a_long_fetch_gets_a_new_ticket_before_the_old_one_ends),
        T(the_next_daemon_signs_with_a_key_of_its_own),
        T(a_source_that_is_away_is_named),
        T(what_has_come_is_a_copy_and_deleted_with_the_rest),
        T(what_has_come_half_is_deleted_too),
        T(a_job_whose_node_is_away_says_which_and_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
