/* test_place.c - random clusters and jobs: no device twice, gangs whole or not at all, the same
 * plan for the same snapshot; and what a job that waits is told. */
#include "scheduler/place.h"
#include "tests/unit/unit.h"

enum { NODES_MAX = 6, KINDS_MAX = 3, DEVICES_MAX = 8, JOBS_MAX = 12, ROLES_MAX = 3, SEEDS = 400 };
static const char *const kind_names[KINDS_MAX] = {"cpu", "gpu", "npu"};
static const char *const vault_names[] = {"fast", "shared"};

struct cluster {
    struct snapshot snapshot;
    struct snapshot_node nodes[NODES_MAX];
    struct snapshot_kind kinds[NODES_MAX][KINDS_MAX];
    uint32_t free[NODES_MAX][KINDS_MAX][DEVICES_MAX];
    char names[NODES_MAX][8];
    struct snapshot_job jobs[JOBS_MAX];
    struct snapshot_role roles[JOBS_MAX][ROLES_MAX];
};

static uint64_t draws;

static uint32_t below(uint32_t limit)
{
    draws = draws * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(draws >> 33) % limit;
}

static void make_node(struct cluster *cluster, size_t at)
{
    struct snapshot_node *node = &cluster->nodes[at];

    snprintf(cluster->names[at], sizeof(cluster->names[at]), "n%zu", at);
    node->name = cluster->names[at];
    node->open = below(5) != 0;
    node->memory_mib = below(200);
    node->memory_free_mib = node->memory_mib ? below((uint32_t)node->memory_mib) : 0;
    node->vaults = vault_names;
    node->vaults_count = below(3);
    node->kinds = cluster->kinds[at];
    node->kinds_count = below(KINDS_MAX + 1);
    for (size_t k = 0; k < node->kinds_count; k++) {
        struct snapshot_kind *kind = &node->kinds[k];
        kind->name = kind_names[k];
        kind->free = cluster->free[at][k];
        kind->usable_count = below(DEVICES_MAX + 1);
        for (uint32_t i = 0; i < kind->usable_count; i++)
            if (below(3))
                kind->free[kind->free_count++] = i;
    }
}

static void make_job(struct cluster *cluster, size_t at)
{
    struct snapshot_job *job = &cluster->jobs[at];

    job->id = (int64_t)at + 1;
    job->roles = cluster->roles[at];
    job->roles_count = 1 + below(ROLES_MAX);
    job->vault = below(3) ? NULL : vault_names[below(2)];
    job->only_node = below(6) ? NULL : cluster->names[below(NODES_MAX)];
    for (size_t i = 0; i < job->roles_count; i++) {
        struct snapshot_role *role = &cluster->roles[at][i];
        role->name = "main";
        role->device = kind_names[below(KINDS_MAX)];
        role->workers = 1 + below(6);
        role->workers_min = 1 + below(role->workers);
        role->devices = below(3);
        role->cpus = strcmp(role->device, "cpu") ? below(3) : 0; /* beside another kind only */
        role->memory_mib = below(2) ? below(40) : 0;
    }
}

static struct cluster *make_cluster(uint64_t seed)
{
    struct cluster *cluster = NEW(struct cluster);

    draws = seed;
    for (size_t i = 0; i < NODES_MAX; i++)
        make_node(cluster, i);
    for (size_t i = 0; i < JOBS_MAX; i++)
        make_job(cluster, i);
    cluster->snapshot = (struct snapshot){.nodes = cluster->nodes,
                                          .nodes_count = below(NODES_MAX + 1),
                                          .jobs = cluster->jobs,
                                          .jobs_count = below(JOBS_MAX + 1)};
    return cluster;
}

/* Marks devices as used; each was free and nobody's. */
static void use(struct cluster *cluster, bool used[NODES_MAX][KINDS_MAX][DEVICES_MAX], size_t node,
                const char *name, const uint32_t *indices, uint32_t count)
{
    struct snapshot_node *on = &cluster->nodes[node];

    for (uint32_t i = 0; i < count; i++) {
        size_t kind = 0, at = 0;
        while (kind < on->kinds_count && strcmp(on->kinds[kind].name, name) != 0)
            kind++;
        assert_true(kind < on->kinds_count);
        while (at < on->kinds[kind].free_count && on->kinds[kind].free[at] != indices[i])
            at++;
        assert_true(at < on->kinds[kind].free_count);
        assert_false(used[node][kind][indices[i]]);
        used[node][kind][indices[i]] = true;
    }
}

static bool may_use(const struct snapshot_node *node, const struct snapshot_job *job)
{
    bool offered = !job->vault;

    for (size_t i = 0; i < node->vaults_count; i++)
        offered |= job->vault && strcmp(node->vaults[i], job->vault) == 0;
    return node->open && offered && (!job->only_node || strcmp(job->only_node, node->name) == 0);
}

/* A started gang has its minimum of each role, ranks from 0 on, on nodes that it may use. */
static void check_gang(const struct cluster *cluster, const struct plan_entry *entry)
{
    const struct snapshot_job *job = &cluster->jobs[entry->job];
    uint32_t ranks[ROLES_MAX] = {0};

    for (size_t i = 0; i < entry->workers_count; i++) {
        const struct plan_worker *worker = &entry->workers[i];
        const struct snapshot_role *role = &job->roles[worker->role];
        assert_int_equal(worker->rank, ranks[worker->role]++);
        assert_int_equal(worker->devices_count, role->devices);
        assert_int_equal(worker->cpus_count, role->cpus);
        assert_true(worker->node < cluster->snapshot.nodes_count);
        assert_true(may_use(&cluster->nodes[worker->node], job));
    }
    for (size_t i = 0; i < job->roles_count; i++)
        assert_in_range(ranks[i], job->roles[i].workers_min, job->roles[i].workers);
}

static void check_plan(struct cluster *cluster, const struct plan *plan)
{
    bool used[NODES_MAX][KINDS_MAX][DEVICES_MAX] = {0};
    uint64_t memory[NODES_MAX] = {0};

    assert_int_equal(plan->entries_count, cluster->snapshot.jobs_count);
    for (size_t e = 0; e < plan->entries_count; e++) {
        const struct plan_entry *entry = &plan->entries[e];
        assert_int_equal(entry->job, e);
        assert_non_null(entry->text);
        if (entry->answer != PLAN_START) {
            assert_int_equal(entry->workers_count, 0);
            continue;
        }
        check_gang(cluster, entry);
        for (size_t i = 0; i < entry->workers_count; i++) {
            const struct plan_worker *worker = &entry->workers[i];
            const struct snapshot_role *role = &cluster->jobs[e].roles[worker->role];
            use(cluster, used, worker->node, role->device, worker->devices, worker->devices_count);
            use(cluster, used, worker->node, "cpu", worker->cpus, worker->cpus_count);
            memory[worker->node] += role->memory_mib;
        }
    }
    for (size_t i = 0; i < NODES_MAX; i++)
        assert_true(memory[i] <= cluster->nodes[i].memory_free_mib);
}

static void check_same(const struct plan *a, const struct plan *b)
{
    assert_int_equal(a->entries_count, b->entries_count);
    for (size_t e = 0; e < a->entries_count; e++) {
        const struct plan_entry *x = &a->entries[e], *y = &b->entries[e];
        assert_int_equal(x->answer, y->answer);
        assert_string_equal(x->text, y->text);
        assert_int_equal(x->workers_count, y->workers_count);
        for (size_t i = 0; i < x->workers_count; i++) {
            assert_int_equal(x->workers[i].node, y->workers[i].node);
            assert_int_equal(x->workers[i].devices_count, y->workers[i].devices_count);
            for (uint32_t d = 0; d < x->workers[i].devices_count; d++)
                assert_int_equal(x->workers[i].devices[d], y->workers[i].devices[d]);
        }
    }
}

static void random_plans_keep_every_invariant(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct cluster *cluster = make_cluster(seed);
        struct cluster *before = mem_dup(cluster, sizeof(*cluster));
        struct arena *one = arena_create(1 << 24), *two = arena_create(1 << 24);
        struct plan plan = place_pass(&cluster->snapshot, one);
        struct plan again = place_pass(&cluster->snapshot, two);
        check_plan(cluster, &plan);
        check_same(&plan, &again);
        assert_memory_equal(cluster, before, sizeof(*cluster)); /* a pass changes no snapshot */
        arena_destroy(one);
        arena_destroy(two);
        mem_free(before);
        mem_free(cluster);
    }
}

/* A cluster of one open node with two idle devices of one kind. */
static void two_devices(struct cluster *cluster, const char *kind)
{
    cluster->nodes[0] = (struct snapshot_node){
        .name = "n0", .open = true, .kinds = cluster->kinds[0], .kinds_count = 1};
    cluster->kinds[0][0] = (struct snapshot_kind){
        .name = kind, .free = cluster->free[0][0], .free_count = 2, .usable_count = 2};
    cluster->free[0][0][1] = 1;
    cluster->snapshot =
        (struct snapshot){.nodes = cluster->nodes, .nodes_count = 1, .jobs = cluster->jobs};
}

static void add_job(struct cluster *cluster, uint32_t workers, uint32_t workers_min)
{
    size_t at = cluster->snapshot.jobs_count++;

    cluster->roles[at][0] = (struct snapshot_role){.name = "main",
                                                   .device = "gpu",
                                                   .workers = workers,
                                                   .workers_min = workers_min,
                                                   .devices = 1};
    cluster->jobs[at] =
        (struct snapshot_job){.id = (int64_t)at + 1, .roles = cluster->roles[at], .roles_count = 1};
}

static void what_can_never_fit_is_told_from_what_waits(void **state)
{
    struct cluster cluster = {0};
    struct arena *arena = arena_create(1 << 20);

    (void)state;
    two_devices(&cluster, "gpu");
    add_job(&cluster, 2, 2);
    add_job(&cluster, 1, 1);
    add_job(&cluster, 3, 3);
    struct plan plan = place_pass(&cluster.snapshot, arena);
    assert_int_equal(plan.entries[0].answer, PLAN_START);
    assert_int_equal(plan.entries[1].answer, PLAN_NO_ROOM);
    assert_int_equal(plan.entries[2].answer, PLAN_UNSATISFIABLE);
    assert_non_null(strstr(plan.entries[2].text, "needs 3 workers"));
    arena_destroy(arena);
}

static void smaller_jobs_pass_one_that_does_not_fit(void **state)
{
    struct cluster cluster = {0};
    struct arena *arena = arena_create(1 << 20);

    (void)state;
    two_devices(&cluster, "gpu");
    add_job(&cluster, 3, 3);
    add_job(&cluster, 4, 1); /* takes what there is, down to its minimum */
    struct plan plan = place_pass(&cluster.snapshot, arena);
    assert_int_equal(plan.entries[0].workers_count, 0);
    assert_int_equal(plan.entries[1].answer, PLAN_START);
    assert_int_equal(plan.entries[1].workers_count, 2);
    arena_destroy(arena);
}

enum { LARGE_JOBS = 512, LARGE_WORKERS = 100000 };

/* M31: jobs that ask for more than there is, none like another, cost a pass no memory each. */
static void m31_large_jobs_that_do_not_fit_take_no_memory(void **state)
{
    struct cluster cluster = {0};
    struct arena *arena = arena_create(64 << 20);
    struct snapshot_job *jobs = mem_array(LARGE_JOBS + 1, sizeof(*jobs));
    struct snapshot_role *roles = mem_array(LARGE_JOBS + 1, sizeof(*roles));

    (void)state;
    two_devices(&cluster, "gpu");
    cluster.nodes[0].memory_free_mib = cluster.nodes[0].memory_mib = UINT64_MAX;
    for (size_t i = 0; i <= LARGE_JOBS; i++) {
        roles[i] = (struct snapshot_role){.name = "main",
                                          .device = "gpu",
                                          .workers = i < LARGE_JOBS ? LARGE_WORKERS : 2,
                                          .devices = 1,
                                          .memory_mib = UINT64_MAX / 2 - i};
        roles[i].workers_min = roles[i].workers;
        jobs[i] = (struct snapshot_job){.id = (int64_t)i + 1, .roles = &roles[i], .roles_count = 1};
    }
    cluster.snapshot.jobs = jobs;
    cluster.snapshot.jobs_count = LARGE_JOBS + 1;
    struct plan plan = place_pass(&cluster.snapshot, arena);
    for (size_t i = 0; i < LARGE_JOBS; i++)
        assert_int_equal(plan.entries[i].answer, PLAN_UNSATISFIABLE);
    assert_int_equal(plan.entries[LARGE_JOBS].answer, PLAN_START);
    assert_int_equal(plan.entries[LARGE_JOBS].workers_count, 2);
    arena_destroy(arena);
    mem_free(jobs);
    mem_free(roles);
}

/* Two nodes of `devices` each; the job just failed to start on the first. */
static void two_nodes(struct cluster *cluster, uint32_t devices, const struct snapshot_avoid *avoid)
{
    for (size_t at = 0; at < 2; at++) {
        struct snapshot_node *node = &cluster->nodes[at];
        snprintf(cluster->names[at], sizeof(cluster->names[at]), "n%zu", at);
        *node = (struct snapshot_node){.name = cluster->names[at],
                                       .open = true,
                                       .kinds = cluster->kinds[at],
                                       .kinds_count = 1};
        cluster->kinds[at][0] = (struct snapshot_kind){"gpu", cluster->free[at][0], 0, devices};
        for (uint32_t i = 0; i < devices; i++)
            cluster->free[at][0][cluster->kinds[at][0].free_count++] = i;
    }
    cluster->snapshot = (struct snapshot){
        .nodes = cluster->nodes, .nodes_count = 2, .jobs = cluster->jobs, .now_us = 1000000};
    add_job(cluster, 2, 2);
    cluster->jobs[0].avoids = avoid;
    cluster->jobs[0].avoids_count = 1;
}

static void a_node_where_it_failed_is_left_alone_for_a_while(void **state)
{
    struct cluster cluster = {0};
    struct arena *arena = arena_create(1 << 20);
    struct snapshot_avoid avoid = {"n0", 31000000, "exec: No such file", 1000000};

    (void)state;
    two_nodes(&cluster, 2, &avoid);
    struct plan plan = place_pass(&cluster.snapshot, arena);
    assert_int_equal(plan.entries[0].answer, PLAN_START);
    assert_int_equal(plan.entries[0].workers[0].node, 1);
    cluster.kinds[1][0].free_count = 1; /* busy, but it could hold the gang: wait for it */
    plan = place_pass(&cluster.snapshot, arena);
    assert_int_equal(plan.entries[0].answer, PLAN_NO_ROOM);
    assert_string_equal(plan.entries[0].text, "waits for free devices; stays away from n0 for 31 s "
                                              "more: exec: No such file");
    cluster.snapshot.now_us = 6000000; /* long enough: any that has room will do */
    plan = place_pass(&cluster.snapshot, arena);
    assert_int_equal(plan.entries[0].answer, PLAN_START);
    assert_int_equal(plan.entries[0].workers[0].node, 0);
    cluster.kinds[1][0].free_count = 2; /* but it still prefers the other */
    plan = place_pass(&cluster.snapshot, arena);
    assert_int_equal(plan.entries[0].workers[0].node, 1);
    cluster.snapshot.now_us = 31000000; /* its time is over */
    plan = place_pass(&cluster.snapshot, arena);
    assert_int_equal(plan.entries[0].workers[0].node, 0);
    arena_destroy(arena);
}

static void with_nowhere_else_to_go_it_goes_back(void **state)
{
    struct cluster cluster = {0};
    struct arena *arena = arena_create(1 << 20);
    struct snapshot_avoid avoid = {"n0", 31000000, "exec: No such file", 1000000};

    (void)state;
    two_nodes(&cluster, 1, &avoid); /* the gang needs both */
    struct plan plan = place_pass(&cluster.snapshot, arena);
    assert_int_equal(plan.entries[0].answer, PLAN_START);
    assert_int_equal(plan.entries[0].workers_count, 2);
    arena_destroy(arena);
}

static void what_one_job_avoids_keeps_no_other_away(void **state)
{
    struct cluster cluster = {0};
    struct arena *arena = arena_create(1 << 20);
    struct snapshot_avoid avoid = {"n0", 31000000, "exec: No such file", 1000000};

    (void)state;
    two_nodes(&cluster, 2, &avoid);
    cluster.kinds[1][0].free_count = 0;
    add_job(&cluster, 2, 2); /* the same shape behind it */
    struct plan plan = place_pass(&cluster.snapshot, arena);
    assert_int_equal(plan.entries[0].answer, PLAN_NO_ROOM);
    assert_int_equal(plan.entries[1].answer, PLAN_START);
    assert_int_equal(plan.entries[1].workers[0].node, 0);
    arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans_keep_every_invariant),
        cmocka_unit_test(what_can_never_fit_is_told_from_what_waits),
        cmocka_unit_test(smaller_jobs_pass_one_that_does_not_fit),
        cmocka_unit_test(m31_large_jobs_that_do_not_fit_take_no_memory),
        cmocka_unit_test(a_node_where_it_failed_is_left_alone_for_a_while),
        cmocka_unit_test(with_nowhere_else_to_go_it_goes_back),
        cmocka_unit_test(what_one_job_avoids_keeps_no_other_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
