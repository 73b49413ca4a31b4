/* test_inventory.c - the core's view of device.h. */
#include "agent/device.h"
#include "agent/inventory.h"
#include "base/loop.h"
#include "tests/unit/unit.h"

struct scene {
    struct loop *loop;
    struct inventory *inventory;
    struct loop_timer *timer;
    bool empty;
};

static void proved(void *arg, bool empty, const char *text)
{
    struct scene *scene = arg;
    (void)text;
    scene->empty = empty;
    loop_uv_stop(scene->loop);
}

static void look(void *arg)
{
    struct scene *scene = arg;
    if (scene->inventory->ops->ready(scene->inventory))
        loop_uv_stop(scene->loop);
    else
        loop_timer_set(scene->timer, 5000);
}

static void cpu_slots_are_listed_and_always_empty(void **state)
{
    struct scene scene = {.loop = loop_uv_create()};
    struct device_options options = {.loop = scene.loop,
                                     .self_path = "/nonexistent",
                                     .nvidia_library = "none",
                                     .cpu_slots = 3,
                                     .probe_ms_max = 1000,
                                     .probe_every_ms = 60000};
    struct device_pool *pool = device_pool_create(&options);
    const Pb__Device *devices[16];
    uint32_t index = 1;
    size_t cpus = 0;
    (void)state;
    scene.inventory = inventory_pool_create(pool);
    scene.timer = loop_timer_create(scene.loop, look, &scene);
    loop_timer_set(scene.timer, 0);
    loop_uv_run(scene.loop);
    size_t count = scene.inventory->ops->list(scene.inventory, devices, COUNT_OF(devices));
    for (size_t i = 0; i < count; i++)
        cpus += strcmp(devices[i]->kind, "cpu") == 0;
    assert_int_equal(cpus, 3);
    scene.inventory->ops->prove_empty(scene.inventory, "cpu", &index, 1, proved, &scene);
    assert_false(scene.empty);
    loop_uv_run(scene.loop);
    assert_true(scene.empty);
    scene.inventory->ops->destroy(scene.inventory);
    device_pool_destroy(pool);
    loop_timer_destroy(scene.timer);
    loop_uv_destroy(scene.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cpu_slots_are_listed_and_always_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
