/* test_device.c - inventory, health and proofs of emptiness with stand-ins for the vendor's
 * library. This very program is the probe child, as rondo-agent is in earnest. */
#include "agent/device.h"
#include "agent/device_probe.h"
#include "agent/stray.h"
#include "tests/unit/unit.h"
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#define LIMIT_US ((int64_t)60 * 1000000)

struct bench {
    struct loop *loop;
    struct device_pool *pool;
    char *dir;
    char self[512];
    int changes, proofs;
    bool empty;
    char text[256];
    int ticks; /* of a timer that must never be held up */
    int64_t tick_us, gap_us;
    struct loop_timer *ticker, *limit;
};

static void bench_changed(void *arg)
{
    struct bench *bench = arg;
    bench->changes++;
    loop_uv_stop(bench->loop);
}

static void bench_proven(void *arg, bool empty, const char *text)
{
    struct bench *bench = arg;
    bench->proofs++;
    bench->empty = empty;
    snprintf(bench->text, sizeof(bench->text), "%s", text);
    loop_uv_stop(bench->loop);
}

static void bench_tick(void *arg)
{
    struct bench *bench = arg;
    int64_t now = loop_now_us(bench->loop);
    if (bench->tick_us && now - bench->tick_us > bench->gap_us)
        bench->gap_us = now - bench->tick_us;
    bench->tick_us = now;
    bench->ticks++;
    loop_timer_set(bench->ticker, 2000);
}

static void bench_late(void *arg)
{
    (void)arg;
    fail_msg("nothing happened for a minute");
}

static int setup(void **state)
{
    struct bench *bench = NEW(struct bench);
    bench->loop = loop_uv_create();
    bench->dir = unit_dir_create();
    bench->ticker = loop_timer_create(bench->loop, bench_tick, bench);
    bench->limit = loop_timer_create(bench->loop, bench_late, bench);
    loop_timer_set(bench->ticker, 0);
    loop_timer_set(bench->limit, LIMIT_US);
    assert_true(readlink("/proc/self/exe", bench->self, sizeof(bench->self) - 1) > 0);
    setenv("RONDO_STANDIN_NVML", unit_path(bench->dir, "gpus"), 1);
    *state = bench;
    return 0;
}

static size_t probes_alive(void)
{
    struct stray_list found;
    const struct stray_query query = {.root = getpid()};
    stray_find(&query, &found);
    size_t count = found.count;
    stray_list_fini(&found);
    return count;
}

static void bench_stop(void *arg)
{
    struct bench *bench = arg;
    loop_uv_stop(bench->loop);
}

/* Until no probe is alive, and then some, for the loop to hear of it. */
static void settle(struct bench *bench)
{
    struct loop_timer *timer = loop_timer_create(bench->loop, bench_stop, bench);
    for (int i = 0, quiet = 0; quiet < 20; i++) {
        assert_true(i < 60000);
        quiet = probes_alive() > 0 ? 0 : quiet + 1;
        loop_timer_set(timer, 1000);
        loop_uv_run(bench->loop);
    }
    loop_timer_destroy(timer);
}

static int teardown(void **state)
{
    struct bench *bench = *state;
    device_pool_destroy(bench->pool);
    settle(bench);
    loop_timer_destroy(bench->ticker);
    loop_timer_destroy(bench->limit);
    loop_uv_destroy(bench->loop);
    unit_dir_destroy(bench->dir);
    mem_free(bench);
    return 0;
}

static void open_pool(struct bench *bench, const char *form, struct device_options options)
{
    char library[512];
    snprintf(library, sizeof(library), RONDO_BINARY_DIR "/tests/libstandin_nvml_%s.so", form);
    options.loop = bench->loop;
    options.self_path = bench->self;
    options.nvidia_library = strcmp(form, "none") == 0 ? "none" : library;
    options.changed = bench_changed;
    options.arg = bench;
    bench->pool = device_pool_create(&options);
    assert_false(device_pool_ready(bench->pool));
    while (!device_pool_ready(bench->pool))
        loop_uv_run(bench->loop);
}

static void gpus(const struct bench *bench, const char *lines)
{
    unit_write(unit_path(bench->dir, "gpus"), lines);
}

static size_t list(const struct bench *bench, const char *kind, const Pb__Device **out)
{
    const Pb__Device *all[256];
    size_t count = device_pool_list(bench->pool, all, COUNT_OF(all)), found = 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(all[i]->kind, kind) == 0)
            out[found++] = all[i];
    return found;
}

static void prove(struct bench *bench, const char *kind, const uint32_t *indices, size_t count)
{
    int before = bench->proofs;
    device_pool_prove_empty(bench->pool, kind, indices, count, bench_proven, bench);
    assert_int_equal(bench->proofs, before); /* later, never at once */
    while (bench->proofs == before)
        loop_uv_run(bench->loop);
}

static void cpus_are_those_we_may_use(void **state)
{
    struct bench *bench = *state;
    const Pb__Device *cpus[256];
    cpu_set_t allowed;
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    open_pool(bench, "none", (struct device_options){0});
    size_t count = list(bench, "cpu", cpus);
    assert_int_equal(count, CPU_COUNT(&allowed));
    for (size_t i = 0; i < count; i++) {
        assert_true(CPU_ISSET(cpus[i]->index, &allowed));
        assert_int_equal(cpus[i]->health, PB__DEVICE__HEALTH__HEALTHY);
        assert_int_equal(device_cpu_of_slot(cpus[i]->index), cpus[i]->index);
    }
    assert_int_equal(list(bench, "nvidia", cpus), 0);
}

static void more_slots_than_cpus_share_them(void **state)
{
    struct bench *bench = *state;
    const Pb__Device *cpus[256];
    cpu_set_t allowed;
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    open_pool(bench, "none", (struct device_options){.cpu_slots = 200});
    assert_int_equal(list(bench, "cpu", cpus), 200);
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(cpus[i]->index, i);
        assert_true(CPU_ISSET(device_cpu_of_slot(i), &allowed));
    }
}

static void gpus_are_found_with_their_health(void **state)
{
    struct bench *bench = *state;
    const Pb__Device *found[256];
    gpus(bench, "81920 ok -\n81920 lost -\n40960 remap -\n");
    open_pool(bench, "works", (struct device_options){.cpu_slots = 1});
    assert_int_equal(list(bench, "nvidia", found), 3);
    assert_int_equal(found[0]->index, 0);
    assert_int_equal(found[0]->memory_mib, 81920);
    assert_int_equal(found[0]->health, PB__DEVICE__HEALTH__HEALTHY);
    assert_string_equal(found[0]->uuid, "GPU-standin-0");
    assert_string_equal(found[0]->model, "Stand-in ? 9000");
    assert_int_equal(found[1]->health, PB__DEVICE__HEALTH__FAULTY);
    assert_string_equal(found[1]->note, "open the device: GPU is lost");
    assert_int_equal(found[2]->health, PB__DEVICE__HEALTH__FAULTY);
    assert_int_equal(found[2]->memory_mib, 40960);
}

static void a_gpu_that_disappears_stays_faulty(void **state)
{
    struct bench *bench = *state;
    const Pb__Device *found[256];
    gpus(bench, "1024 ok -\n1024 ok -\n");
    open_pool(bench, "works", (struct device_options){.cpu_slots = 1, .probe_every_ms = 20});
    assert_int_equal(list(bench, "nvidia", found), 2);
    gpus(bench, "1024 ok -\n");
    int before = bench->changes;
    while (bench->changes == before)
        loop_uv_run(bench->loop);
    assert_int_equal(list(bench, "nvidia", found), 2);
    assert_int_equal(found[0]->health, PB__DEVICE__HEALTH__HEALTHY);
    assert_int_equal(found[1]->health, PB__DEVICE__HEALTH__FAULTY);
    assert_string_equal(found[1]->note, "the device has disappeared");
    gpus(bench, "1024 ok -\n1024 ok -\n");
    before = bench->changes;
    while (bench->changes == before)
        loop_uv_run(bench->loop);
    list(bench, "nvidia", found);
    assert_int_equal(found[1]->health, PB__DEVICE__HEALTH__HEALTHY);
}

static void a_held_device_is_not_empty(void **state)
{
    struct bench *bench = *state;
    const uint32_t both[] = {0, 1}, second[] = {1}, third[] = {2};
    gpus(bench, "1024 ok 77,78\n1024 ok -\n");
    open_pool(bench, "works", (struct device_options){.cpu_slots = 1});
    prove(bench, "nvidia", both, 2);
    assert_false(bench->empty);
    assert_string_equal(bench->text, "nvidia 0 is held by 77 78");
    prove(bench, "nvidia", second, 1);
    assert_true(bench->empty);
    prove(bench, "nvidia", third, 1);
    assert_false(bench->empty);
    gpus(bench, "1024 ok -\n1024 ok -\n");
    prove(bench, "nvidia", both, 2);
    assert_true(bench->empty);
}

/* A proof asked for while a probe runs must not be answered by what that probe saw before. */
static void a_proof_is_never_older_than_its_question(void **state)
{
    struct bench *bench = *state;
    const uint32_t first[] = {0};
    gpus(bench, "1024 ok -\n");
    open_pool(bench, "works", (struct device_options){.cpu_slots = 1});
    for (int i = 0; i < 5; i++)
        device_pool_prove_empty(bench->pool, "nvidia", first, 1, bench_proven, bench);
    while (bench->proofs < 5)
        loop_uv_run(bench->loop);
    assert_true(bench->empty);
}

static void cpus_are_always_empty(void **state)
{
    struct bench *bench = *state;
    const uint32_t first[] = {0};
    open_pool(bench, "none", (struct device_options){.cpu_slots = 1});
    prove(bench, "cpu", first, 1);
    assert_true(bench->empty);
    prove(bench, "abacus", first, 1);
    assert_false(bench->empty);
}

/* M5: a library that never answers costs its devices, not the loop. */
static void m5_a_hanging_probe_is_killed_and_holds_up_nothing(void **state)
{
    struct bench *bench = *state;
    const Pb__Device *found[256];
    const uint32_t first[] = {0};
    gpus(bench, "1024 ok -\n");
    open_pool(bench, "hangs", (struct device_options){.cpu_slots = 1, .probe_ms_max = 300});
    assert_int_equal(list(bench, "nvidia", found), 0);
    assert_int_equal(list(bench, "cpu", found), 1);
    assert_true(bench->ticks > 10);
    prove(bench, "nvidia", first, 1);
    assert_false(bench->empty);
    assert_string_equal(bench->text, "the probe did not answer and was killed");
    settle(bench);
}

static void a_crashing_probe_harms_nobody(void **state)
{
    struct bench *bench = *state;
    const Pb__Device *found[256];
    const uint32_t first[] = {0};
    open_pool(bench, "crashes", (struct device_options){.cpu_slots = 1});
    assert_int_equal(list(bench, "nvidia", found), 0);
    prove(bench, "nvidia", first, 1);
    assert_false(bench->empty);
    assert_non_null(strstr(bench->text, "crashed"));
}

static void a_library_without_a_function_is_named(void **state)
{
    struct bench *bench = *state;
    const Pb__Device *found[256];
    const uint32_t first[] = {0};
    open_pool(bench, "lacks", (struct device_options){.cpu_slots = 1});
    assert_int_equal(list(bench, "nvidia", found), 0);
    prove(bench, "nvidia", first, 1);
    assert_non_null(strstr(bench->text, "has no nvmlDeviceGetCount_v2"));
}

static void a_missing_library_is_no_device(void **state)
{
    struct bench *bench = *state;
    const Pb__Device *found[256];
    open_pool(bench, "is-not-there", (struct device_options){.cpu_slots = 1});
    assert_int_equal(list(bench, "nvidia", found), 0);
    assert_int_equal(list(bench, "cpu", found), 1);
}

static void destroy_while_a_probe_runs_leaves_nothing(void **state)
{
    struct bench *bench = *state;
    const uint32_t first[] = {0};
    open_pool(bench, "works", (struct device_options){.cpu_slots = 1});
    device_pool_prove_empty(bench->pool, "nvidia", first, 1, bench_proven, bench);
    device_pool_destroy(bench->pool);
    bench->pool = NULL;
    settle(bench);
    assert_int_equal(bench->proofs, 0);
}

static void visible_devices_are_listed(void **state)
{
    const uint32_t some[] = {0, 2, 15};
    struct text text;
    (void)state;
    text_init(&text, 0);
    assert_true(device_visible_env("nvidia", some, 3, &text));
    assert_string_equal(text_get(&text), "CUDA_VISIBLE_DEVICES=0,2,15");
    text_reset(&text);
    assert_false(device_visible_env("cpu", some, 3, &text));
    assert_false(device_visible_env("abacus", some, 3, &text));
    assert_string_equal(text_get(&text), "");
    text_fini(&text);
}

static void nonsense_from_a_probe_is_refused(void **state)
{
    static const char *const lines[] = {
        "",
        "{}",
        "[1]",
        "{\"devices\":[],\"error\":7}",
        "{\"devices\":[7],\"error\":\"\"}",
        "{\"devices\":[{\"index\":-1}],\"error\":\"\"}",
        "{\"devices\":[{\"index\":0,\"uuid\":\"u\",\"model\":\"m\",\"memory_mib\":1,\"numa\":-2,"
        "\"faulty\":false,\"note\":\"\",\"processes\":[]}],\"error\":\"\"}",
        "{\"devices\":[{\"index\":0,\"uuid\":\"u\",\"model\":\"m\",\"memory_mib\":1,\"numa\":0,"
        "\"faulty\":false,\"note\":\"\",\"processes\":[-1]}],\"error\":\"\"}",
    };
    struct device_probe probe = {0};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        assert_int_equal(device_probe_parse(lines[i], strlen(lines[i]), &probe, NULL),
                         STATUS_DATA_LOSS);
    assert_null(probe.devices);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--probe-devices") == 0)
        return device_probe_main(argv[2], argc > 3 ? argv[3] : NULL);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(cpus_are_those_we_may_use),
        TEST(more_slots_than_cpus_share_them),
        TEST(gpus_are_found_with_their_health),
        TEST(a_gpu_that_disappears_stays_faulty),
        TEST(a_held_device_is_not_empty),
        TEST(a_proof_is_never_older_than_its_question),
        TEST(cpus_are_always_empty),
        TEST(m5_a_hanging_probe_is_killed_and_holds_up_nothing),
        TEST(a_crashing_probe_harms_nobody),
        TEST(a_library_without_a_function_is_named),
        TEST(a_missing_library_is_no_device),
        TEST(destroy_while_a_probe_runs_leaves_nothing),
        cmocka_unit_test(visible_devices_are_listed),
        cmocka_unit_test(nonsense_from_a_probe_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
