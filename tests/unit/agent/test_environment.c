/* test_environment.c - a worker's environment: who wins, what is refused, what survives unchanged.
 */
#include "agent/environment.h"
#include "tests/unit/unit.h"

struct scene {
    Pb__WorkerKey key;
    Pb__Launch launch;
    Pb__Resources resources;
    Pb__StringPair pair, *pairs[1];
    uint32_t devices[2];
    struct option_list pass, node;
    char *pass_items[2], *node_items[2];
    struct environment_facts facts;
};

static const char *inherited(const char *name)
{
    return strcmp(name, "LANG") == 0 ? "de_DE.UTF-8" : strcmp(name, "SECRET") == 0 ? "x" : NULL;
}

static void scene_init(struct scene *scene, const char *name, const char *value)
{
    memset(scene, 0, sizeof(*scene));
    pb__worker_key__init(&scene->key);
    pb__launch__init(&scene->launch);
    pb__resources__init(&scene->resources);
    pb__string_pair__init(&scene->pair);
    scene->key.job = 7;
    scene->key.attempt = 2;
    scene->key.rank = 1;
    scene->key.incarnation = 1;
    scene->key.role = (char *)(uintptr_t) "trainer";
    scene->launch.world = 4;
    scene->launch.local_rank = 1;
    scene->launch.master_addr = (char *)(uintptr_t) "10.0.0.1";
    scene->launch.master_port = 20001;
    scene->resources.device = (char *)(uintptr_t) "nvidia";
    scene->launch.resources = &scene->resources;
    scene->devices[0] = 2;
    scene->devices[1] = 3;
    scene->launch.devices = scene->devices;
    scene->launch.n_devices = 2;
    scene->pair.name = (char *)(uintptr_t)name;
    scene->pair.value = (char *)(uintptr_t)value;
    scene->pairs[0] = &scene->pair;
    scene->launch.env = scene->pairs;
    scene->launch.n_env = name ? 1 : 0;
    scene->pass_items[0] = (char *)(uintptr_t) "LANG";
    scene->pass = (struct option_list){scene->pass_items, 1};
    scene->node_items[0] = (char *)(uintptr_t) "GLOO_SOCKET_IFNAME=eth7";
    scene->node = (struct option_list){scene->node_items, 1};
    scene->facts = (struct environment_facts){
        .key = &scene->key,
        .launch = &scene->launch,
        .tag = "7.2.trainer.1.1",
        .node = "n1",
        .dir = "/w",
        .tmp_dir = "/w/tmp",
        .start_us = 99,
        .pass_env = &scene->pass,
        .worker_env = &scene->node,
        .inherited = inherited,
    };
}

static void nothing_is_inherited_but_what_is_listed(void **state)
{
    struct scene scene;
    struct environment *env = NULL;
    (void)state;
    scene_init(&scene, "OMP_NUM_THREADS", "8");
    assert_int_equal(environment_create(&scene.facts, &env, NULL), STATUS_OK);
    assert_string_equal(environment_get(env, "LANG"), "de_DE.UTF-8");
    assert_null(environment_get(env, "SECRET"));
    assert_string_equal(environment_get(env, "OMP_NUM_THREADS"), "8");
    assert_string_equal(environment_get(env, "PYTHONUNBUFFERED"), "1");
    assert_string_equal(environment_get(env, "RANK"), "1");
    assert_string_equal(environment_get(env, "WORLD_SIZE"), "4");
    assert_string_equal(environment_get(env, "MASTER_PORT"), "20001");
    assert_string_equal(environment_get(env, "RONDO_WORKER"), "7.2.trainer.1.1");
    assert_string_equal(environment_get(env, "RONDO_START_US"), "99");
    assert_string_equal(environment_get(env, "CUDA_VISIBLE_DEVICES"), "2,3");
    assert_string_equal(environment_get(env, "GLOO_SOCKET_IFNAME"), "eth7");
    assert_string_equal(environment_get(env, "TMPDIR"), "/w/tmp");
    assert_string_equal(environment_get(env, "HOME"), "/w/tmp");
    assert_null(environment_get(env, "RONDO_RESUME_DIR"));
    environment_destroy(env);
}

static void values_pass_unchanged(void **state)
{
    static const char *const values[] = {"", "a=b=c", "two\nlines", "\xff\xfe", " x "};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        struct scene scene;
        struct environment *env = NULL;
        bool found = false;
        scene_init(&scene, "ODD", values[i]);
        assert_int_equal(environment_create(&scene.facts, &env, NULL), STATUS_OK);
        assert_string_equal(environment_get(env, "ODD"), values[i]);
        const char *const *list = environment_list(env);
        for (size_t j = 0; list[j]; j++)
            found |= strncmp(list[j], "ODD=", 4) == 0 && strcmp(list[j] + 4, values[i]) == 0;
        assert_true(found);
        environment_destroy(env);
    }
}

static void bad_names_and_sizes_are_refused_by_name(void **state)
{
    static const char *const names[] = {"", "1A", "A=B", "A B", "RONDO_JOB", "\xc3\xa9"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct scene scene;
        struct environment *env = NULL;
        struct error err;
        scene_init(&scene, names[i], "v");
        assert_int_equal(environment_create(&scene.facts, &env, &err), STATUS_INVALID);
        assert_null(env);
        assert_non_null(strstr(err.text, names[i]));
    }
    struct scene scene;
    struct environment *env = NULL;
    SCOPED_TEXT char *large = mem_alloc(131072);
    memset(large, 'x', 131071);
    scene_init(&scene, "LARGE", large);
    assert_int_equal(environment_create(&scene.facts, &env, NULL), STATUS_INVALID);
}

static void rank_table_is_json(void **state)
{
    Pb__RankPlace place = PB__RANK_PLACE__INIT, *places[] = {&place};
    Pb__Launch launch = PB__LAUNCH__INIT;
    struct text out;
    (void)state;
    place.role = (char *)(uintptr_t) "a\"b\\\n";
    place.node = (char *)(uintptr_t) "n1";
    launch.table = places;
    launch.n_table = 1;
    text_init(&out, 0);
    environment_rank_table(&launch, &out);
    assert_string_equal(text_get(&out),
                        "[\n {\"role\": \"a\\\"b\\\\\\u000a\", \"rank\": 0, \"node\": "
                        "\"n1\", \"address\": \"\", \"port\": 0}\n]\n");
    text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_inherited_but_what_is_listed),
        cmocka_unit_test(values_pass_unchanged),
        cmocka_unit_test(bad_names_and_sizes_are_refused_by_name),
        cmocka_unit_test(rank_table_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
