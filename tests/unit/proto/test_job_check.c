/* test_job_check.c - rules of a job spec, and its defaults. */
#include "proto/text/job_check.h"
#include "proto/text/job_limit.h"
#include "proto/text/text_field.h"
#include "proto/text/text_format.h"
#include "tests/unit/unit.h"

static const char good[] = "name: j\nroles: [{name: r, command: [/bin/true]}]\n";

static Pb__JobSpec *job_with(const char *const *sets, size_t count)
{
    ProtobufCMessage *message = NULL;
    struct text problems;
    text_init(&problems, 0);
    assert_int_equal(
        text_format_parse("f", good, strlen(good), &pb__job_spec__descriptor, &message, &problems),
        STATUS_OK);
    for (size_t i = 0; i < count; i++)
        if (text_format_set(message, sets[i], &problems) != STATUS_OK)
            fail_msg("%s", text_get(&problems));
    text_fini(&problems);
    return (Pb__JobSpec *)message;
}

static void expect(const Pb__JobSpec *spec, const char *wanted)
{
    struct text problems;
    text_init(&problems, 0);
    enum status st = job_check(spec, &problems);
    assert_string_equal(text_get(&problems), wanted);
    assert_int_equal(st, *wanted ? STATUS_INVALID : STATUS_OK);
    text_fini(&problems);
}

static void expect_set(const char *set, const char *wanted)
{
    Pb__JobSpec *spec = job_with(&set, 1);
    expect(spec, wanted);
    protobuf_c_message_free_unpacked(&spec->base, NULL);
}

static void what_the_agent_tells_is_no_variable_of_the_job(void **state)
{
    (void)state;
    expect_set("roles.0.env={MASTER_ADDR: h}", "roles.0.env.0: name 'MASTER_ADDR' is set by the "
                                               "agent for each worker; leave it out\n");
    expect_set("roles.0.env={TORCHELASTIC_RUN_ID: h}",
               "roles.0.env.0: name 'TORCHELASTIC_RUN_ID' is set by the agent for each worker; "
               "leave it out\n");
    expect_set("roles.0.env={RANKS: h}", "");
}

static void a_small_job_passes(void **state)
{
    (void)state;
    expect_set("name=Größe 中", "");
    expect_set("roles.0.env={A: \"x=y\\n\", B: ''}", "");
    expect_set("code={path: /opt/x, on_nodes: true}", "");
    expect_set("checkpoint={watch: {pattern: \"out/step-{step}\", marker: DONE}}", "");
    expect_set("restart.backoff_ms=10m", "");
}

static void each_rule_names_field_value_and_range(void **state)
{
    static const char *const cases[][2] = {
        {"name=", "name: is empty; 1..253 bytes are needed\n"},
        {"name= x", "name: must not begin or end with a space\n"},
        {"name=a\tb", "name: 'a?b' holds a control character\n"},
        {"name=a\u202e"
         "b",
         "name: 'a\u202e"
         "b' holds a control character\n"},
        {"project=A,b", "project: 'A,b' may hold only a-z, 0-9, '.', '_' and '-', and no dot "
                        "first\n"},
        {"priority=1001", "priority: 1001 is out of range -1000..1000, nearest 1000\n"},
        {"priority=-2000", "priority: -2000 is out of range -1000..1000, nearest -1000\n"},
        {"labels={a=b: c}", "labels.0: name 'a=b' must not contain '='\n"},
        {"roles=[]", "roles: is empty; 1..16 are needed, each with a name and a command\n"},
        {"roles.0.name=A", "roles.0.name: 'A' may hold only a-z, 0-9 and '-'\n"},
        {"roles.0.command=[]", "roles.0.command: is empty; give the program and its arguments, "
                               "e.g. [python3, train.py]\n"},
        {"roles.0.workers=0", "roles.0.workers: 0 is out of range 1..100000, nearest 1\n"},
        {"roles.0.workers_min=3", "roles.0.workers_min: 3 is above workers, 1; nearest 1\n"},
        {"roles.0.workdir=../x", "roles.0.workdir: '../x' must not contain '..'\n"},
        {"roles.0.env=[{name: A, value: x}, {name: A}]", "roles.0.env.1: 'A' is given twice\n"},
        {"roles.0.env=[{value: x}]", "roles.0.env.0: name '' is empty\n"},
        {"roles.0.env={RONDO_DIR: /etc}", "roles.0.env.0: name 'RONDO_DIR' is reserved\n"},
        {"roles.0.env={\"A\\nB\": x}", "roles.0.env.0: name 'A?B' may hold only letters, digits "
                                       "and '_', and no digit first\n"},
        {"labels={\"a\\e[2J\": x}", "labels.0: name 'a?[2J' holds a control character\n"},
        {"labels={a: \"x\\u202ey\"}",
         "labels.0: name 'a' has a value that holds a control character\n"},
        {"roles.0.resources={devices: 0}",
         "roles.0.resources.devices: 0 is out of range 1..1024, nearest 1\n"},
        {"roles.0.resources={cpus: 2}", "roles.0.resources.cpus: 2 beside device cpu; nearest 0: "
                                        "CPU slots are its devices\n"},
        {"code={path: x}", "code: digest is missing; rondoctl packs the path and fills it in\n"},
        {"code={on_nodes: true, path: x}",
         "code.path: 'x' must start with '/': with on_nodes it exists on every node\n"},
        {"code={path: x, digest: abc}",
         "code.digest: 'abc' is no SHA-256: 64 digits of 0-9 and a-f\n"},
        {"grace_ms=2d", "grace_ms: 172800000 is out of range 0..86400000, nearest 86400000\n"},
        {"phases.start_ms=0", "phases.start_ms: 0 is out of range 1..86400000, nearest 1\n"},
        {"restart={backoff_ms: 9, backoff_ms_max: 5}",
         "restart.backoff_ms: 9 is above backoff_ms_max, 5; nearest 5\n"},
        {"success={rule: TARGET}",
         "success.target_samples: 0; rule TARGET needs 1 or more, nearest 1\n"
         "success.rule: TARGET needs a checkpoint policy: add 'checkpoint:'\n"},
        {"success={target_samples: 5}",
         "success.target_samples: 5 has no meaning without 'rule: TARGET'\n"},
        {"success={target_samples: -5}", "success.target_samples: -5 is out of range "
                                         "0..9223372036854775807, nearest 0\n"},
        {"on_unreachable=ON_UNREACHABLE_UNSPECIFIED",
         "on_unreachable: ON_UNREACHABLE_UNSPECIFIED is none of RUN_ON, STOP\n"},
        {"checkpoint={keep: 0}", "checkpoint.keep: 0 is out of range 1..10000, nearest 1\n"},
        {"checkpoint={every_steps: 18446744073709551615}",
         "checkpoint.every_steps: 18446744073709551615 is out of range 0..9007199254740992, "
         "nearest 9007199254740992\n"},
        {"checkpoint={watch: {pattern: \"{step}{step}\", marker: D}}",
         "checkpoint.watch.pattern: '{step}{step}' must contain {step} once, e.g. step-{step}\n"},
        {"checkpoint={watch: {pattern: \"a/../{step}\", marker: D}}",
         "checkpoint.watch.pattern: 'a/../{step}' must not contain '..'\n"},
        {"checkpoint={watch: {pattern: \"/s{step}\", marker: D}}",
         "checkpoint.watch: pattern and marker are relative; no '/' first\n"},
        {"checkpoint={watch: {pattern: \"s{step}\"}}",
         "checkpoint.watch.marker: is empty; 1..255 bytes are needed\n"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_set(cases[i][0], cases[i][1]);
}

static void the_best_are_so_by_a_metric(void **state)
{
    (void)state;
    expect_set("checkpoint={keep_best: 2, keep_metric: loss}", "");
    expect_set("checkpoint={keep_best: 2}",
               "checkpoint.keep_best: 2: the best by what? name a metric that rank 0 reports in "
               "keep_metric\n");
    expect_set("checkpoint={keep_metric: loss}",
               "checkpoint.keep_metric: 'loss' has no meaning without keep_best\n");
}

static void role_names_differ_and_workers_add_up(void **state)
{
    static const char *const sets[] = {
        "roles=[{name: a, command: [x], workers: 60000}, {name: a, command: [x], workers: 50000}]"};
    (void)state;
    Pb__JobSpec *spec = job_with(sets, 1);
    expect(spec, "roles.1: name 'a' is taken by an earlier role\n"
                 "roles: 110000 workers in all are too many; at most 100000\n");
    protobuf_c_message_free_unpacked(&spec->base, NULL);
}

static void sizes_have_limits(void **state)
{
    (void)state;
    Pb__JobSpec *spec = job_with(NULL, 0);
    Pb__Role *role = spec->roles[0];
    char *long_text = mem_alloc(131100);
    memset(long_text, 'v', 131000);
    Pb__StringPair pairs[5] = {PB__STRING_PAIR__INIT, PB__STRING_PAIR__INIT, PB__STRING_PAIR__INIT,
                               PB__STRING_PAIR__INIT, PB__STRING_PAIR__INIT};
    char *names[] = {"A", "B", "C", "D", "E"};
    Pb__StringPair *list[5];
    for (int i = 0; i < 5; i++) {
        pairs[i].name = names[i];
        pairs[i].value = long_text + 2;
        list[i] = &pairs[i];
    }
    role->env = list;
    role->n_env = 4;
    expect(spec, "");
    role->n_env = 5;
    expect(spec, "roles.0.env: 655005 bytes in all are too many; at most 524288\n");
    role->n_env = 1;
    pairs[0].value = long_text;
    expect(spec, "roles.0.env.0: 'A' has 131001 bytes; a name may have 131000, a value 131000, "
                 "both 131000\n");
    pairs[0].value = (char[]){"bad \xff"};
    expect(spec, "roles.0.env.0.value: 'bad ?' is not valid UTF-8\n");
    role->n_env = 0;
    role->env = NULL;
    protobuf_c_message_free_unpacked(&spec->base, NULL);
    mem_free(long_text);
}

static void walk_limits(const ProtobufCMessageDescriptor *type)
{
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            walk_limits(field->descriptor);
        else if (field->type == PROTOBUF_C_TYPE_STRING)
            assert_non_null(job_limit_text(type, field->name));
        else if (field->type != PROTOBUF_C_TYPE_BOOL && field->type != PROTOBUF_C_TYPE_ENUM)
            assert_non_null(job_limit_number(type, field->name));
    }
}

static void every_number_and_text_has_a_row(void **state)
{
    (void)state;
    walk_limits(&pb__job_spec__descriptor);
}

static void every_default_passes(void **state)
{
    (void)state;
    Pb__JobSpec *spec = job_with(NULL, 0);
    job_check_fill(spec);
    expect(spec, "");
    protobuf_c_message_free_unpacked(&spec->base, NULL);
}

static void fill_makes_defaults_explicit_once(void **state)
{
    static const char *const sets[] = {"roles.0.workers=3", "restart.backoff_ms=10m"};
    (void)state;
    Pb__JobSpec *spec = job_with(sets, 2);
    job_check_fill(spec);
    assert_string_equal(spec->project, "default");
    assert_true(spec->has_grace_ms && spec->phases->has_save_ms && spec->success->has_rule);
    assert_int_equal(spec->roles[0]->workers_min, 3);
    assert_int_equal(spec->roles[0]->workers_max, 3);
    assert_string_equal(spec->roles[0]->resources->device, "cpu");
    assert_int_equal(spec->restart->backoff_ms_max, 600000);
    assert_int_equal(spec->checkpoint->keep, 3);
    assert_null(spec->code);
    assert_null(spec->checkpoint->watch);
    size_t size = protobuf_c_message_get_packed_size(&spec->base);
    job_check_fill(spec);
    assert_int_equal(protobuf_c_message_get_packed_size(&spec->base), size);
    ProtobufCMessage *copy = message_copy(&spec->base);
    assert_string_equal(((Pb__JobSpec *)copy)->roles[0]->resources->device, "cpu");
    protobuf_c_message_free_unpacked(copy, NULL);
    protobuf_c_message_free_unpacked(&spec->base, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_job_passes),
        cmocka_unit_test(what_the_agent_tells_is_no_variable_of_the_job),
        cmocka_unit_test(each_rule_names_field_value_and_range),
        cmocka_unit_test(the_best_are_so_by_a_metric),
        cmocka_unit_test(role_names_differ_and_workers_add_up),
        cmocka_unit_test(sizes_have_limits),
        cmocka_unit_test(every_number_and_text_has_a_row),
        cmocka_unit_test(every_default_passes),
        cmocka_unit_test(fill_makes_defaults_explicit_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
