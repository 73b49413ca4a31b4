/* test_text_format.c - reading, printing and setting; any message survives both forms. */
#include "proto/pb.h"
#include "proto/text/text_format.h"
#include "tests/unit/proto/random_message.h"
#include "tests/unit/unit.h"
#include <jansson.h>

static const char good[] = "name: charlm\n"
                           "priority: -7\n"
                           "labels: {team: nlp, n: 5, empty: ''}\n"
                           "time_limit_s: 1h30m\n"
                           "grace_ms: 45s\n"
                           "on_unreachable: stop\n"
                           "roles:\n"
                           "- name: trainer\n"
                           "  command: [python3, train.py, --lr, 3e-4, 7]\n"
                           "  workers: 2\n"
                           "  env:\n"
                           "  - {name: A, value: x=y}\n"
                           "  - {name: B, value: ''}\n"
                           "  resources: {memory_mib: 1.5GiB, device: nvidia}\n"
                           "checkpoint: {every_steps: 100, writers: Rank_Zero, resizable: true}\n";

static Pb__JobSpec *parse(const char *yaml, const char *problems_wanted)
{
    ProtobufCMessage *message = NULL;
    struct text problems;
    text_init(&problems, 0);
    enum status st = text_format_parse("job.yaml", yaml, strlen(yaml), &pb__job_spec__descriptor,
                                       &message, &problems);
    assert_string_equal(text_get(&problems), problems_wanted);
    assert_int_equal(st, *problems_wanted ? STATUS_INVALID : STATUS_OK);
    assert_true((message != NULL) == (st == STATUS_OK));
    text_fini(&problems);
    return (Pb__JobSpec *)message;
}

static void drop(Pb__JobSpec *spec)
{
    if (spec)
        protobuf_c_message_free_unpacked(&spec->base, NULL);
}

static void reads_a_job_with_short_forms(void **state)
{
    (void)state;
    Pb__JobSpec *spec = parse(good, "");
    assert_string_equal(spec->name, "charlm");
    assert_string_equal(spec->project, "default");
    assert_int_equal(spec->priority, -7);
    assert_int_equal(spec->n_labels, 3);
    assert_string_equal(spec->labels[1]->value, "5");
    assert_string_equal(spec->labels[2]->value, "");
    assert_int_equal(spec->time_limit_s, 5400);
    assert_int_equal(spec->grace_ms, 45000);
    assert_int_equal(spec->on_unreachable, PB__JOB_SPEC__ON_UNREACHABLE__STOP);
    assert_int_equal(spec->n_roles, 1);
    const Pb__Role *role = spec->roles[0];
    assert_int_equal(role->n_command, 5);
    assert_string_equal(role->command[3], "3e-4");
    assert_string_equal(role->command[4], "7");
    assert_string_equal(role->env[0]->value, "x=y");
    assert_int_equal(role->resources->memory_mib, 1536);
    assert_int_equal(role->resources->devices, 1);
    assert_int_equal(spec->checkpoint->writers, PB__CHECKPOINT_POLICY__WRITERS__RANK_ZERO);
    assert_true(spec->checkpoint->has_resizable && spec->checkpoint->resizable);
    drop(spec);
}

static void all_problems_come_in_one_run_with_their_places(void **state)
{
    (void)state;
    parse("nam: x\n"
          "priority: high\n"
          "priority: 2\n"
          "roles:\n"
          "- command: python train.py\n"
          "  workers: 5000000000\n"
          "  env: {A: 1, A: 2, B: [x]}\n"
          "- just text\n"
          "on_unreachable: run_om\n"
          "hold: yes\n"
          "time_limit_s: 1500ms\n"
          "grace_ms: -5\n"
          "project:\n"
          "labels: text\n"
          "restart: [1]\n"
          "success: {target_samples: '12', rule: 3}\n"
          "checkpoint: {keep: '3', zzzzzz: 1}\n",
          "job.yaml:1:1: unknown field 'nam' in JobSpec; did you mean 'name'?\n"
          "job.yaml:2:11: field 'priority': 'high' is not a whole number from -1000 to 1000\n"
          "job.yaml:3:1: field 'priority' is given twice; first in line 2\n"
          "job.yaml:5:12: field 'command': wants a list such as [a, b], not a single value\n"
          "job.yaml:6:12: field 'workers': '5000000000' is not a whole number from 1 to 100000\n"
          "job.yaml:7:15: env 'A' is given twice; first in line 7\n"
          "job.yaml:7:24: field 'env': 'B' wants a text, not a list\n"
          "job.yaml:8:3: field 'roles': wants a mapping with the fields of Role, not a single "
          "value\n"
          "job.yaml:9:17: field 'on_unreachable': 'run_om' is none of RUN_ON, STOP; did you mean "
          "'RUN_ON'?\n"
          "job.yaml:10:7: field 'hold': 'yes' is neither true nor false (written without quotes)\n"
          "job.yaml:11:15: field 'time_limit_s': '1500ms' is not a number of seconds, or 30s, "
          "10m, 2h, 1h30m, 1d\n"
          "job.yaml:12:11: field 'grace_ms': '-5' is not a number of milliseconds, or 500ms, 30s, "
          "10m, 2h, 1h30m, 1d\n"
          "job.yaml:13:9: field 'project': has no value; leave it out, or write '' for empty "
          "text\n"
          "job.yaml:14:9: field 'labels': wants a mapping such as {NAME: text}, not a single "
          "value\n"
          "job.yaml:15:10: field 'restart': wants a mapping with the fields of Restart, not a "
          "list\n"
          "job.yaml:16:39: field 'rule': '3' is none of ALL_RANKS_ZERO, TARGET\n"
          "job.yaml:17:20: field 'keep': '3' is quoted text; a number is written without quotes\n"
          "job.yaml:17:25: unknown field 'zzzzzz' in CheckpointPolicy, which has vault, "
          "every_steps, every_s, writers, watch, resizable, keep, allow_node_vault, "
          "start_over, keep_every_steps, keep_ttl_s, keep_best, keep_metric, keep_order, verify\n");
}

static void refuses_what_is_not_one_yaml_mapping(void **state)
{
    (void)state;
    parse("", "job.yaml:1:1: the file is empty; wanted a mapping with the fields of JobSpec\n");
    parse("- a\n", "job.yaml:1:1: not a mapping; wanted a mapping with the fields of JobSpec\n");
    parse("name: a\n---\nname: b\n",
          "job.yaml:2:1: a second document; one file holds one (remove '---')\n");
    parse("name: [a\n", "job.yaml:2:1: not YAML: did not find expected ',' or ']', while parsing "
                        "a flow sequence\n");
    parse("name: \"a\\0b\"\n", "job.yaml:1:7: field 'name': the text holds a NUL character\n");
    parse("name: a\npro\xc3\xa9: \xff\n", "job.yaml:2:7: byte 0xff is not UTF-8 text\n");
    parse("name: !!binary aGk=\n", "job.yaml:1:7: tag 'binary' is not supported; remove it\n");
    parse("<<: {}\n", "job.yaml:1:1: merge keys ('<<') are not supported; write the fields\n");
    parse("name: *a\n", "job.yaml:1:7: not YAML: found undefined alias\n");
}

static void bounds_hold_before_they_cost(void **state)
{
    (void)state;
    size_t size = (1 << 20) + 1;
    char *big = mem_alloc(size + 1);
    memset(big, '[', size);
    ProtobufCMessage *message = NULL;
    struct text problems;
    text_init(&problems, 0);
    assert_int_equal(
        text_format_parse("f", big, size, &pb__job_spec__descriptor, &message, &problems),
        STATUS_INVALID);
    assert_string_equal(text_get(&problems),
                        "f: 1048577 bytes are too many; at most 1048576 are read\n");
    text_reset(&problems);
    assert_int_equal(
        text_format_parse("f", big, size - 1, &pb__job_spec__descriptor, &message, &problems),
        STATUS_INVALID);
    assert_string_equal(text_get(&problems), "f:1:33: nested deeper than 32 levels\n");
    text_fini(&problems);
    mem_free(big);
}

static void aliases_cannot_multiply(void **state)
{
    (void)state;
    struct text yaml, problems;
    text_init(&yaml, 0);
    text_init(&problems, 0);
    text_add(&yaml, "name: &a \"");
    for (int i = 0; i < 1000; i++)
        text_add(&yaml, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    text_add(&yaml, "\"\nroles:\n- &r\n  command: &c [");
    for (int i = 0; i < 300; i++)
        text_add(&yaml, "*a,");
    text_add(&yaml, "b]\n");
    for (int i = 0; i < 100; i++)
        text_add(&yaml, "- *r\n");
    ProtobufCMessage *message = NULL;
    assert_int_equal(text_format_parse("f", text_get(&yaml), yaml.len, &pb__job_spec__descriptor,
                                       &message, &problems),
                     STATUS_INVALID);
    assert_non_null(strstr(text_get(&problems), "more than 100000 values or 16 MiB of text"));
    text_fini(&yaml);
    text_fini(&problems);
    parse("roles: &r\n- {name: a, env: {X: &v 1, Y: *v}}\n- *r\n",
          "job.yaml:1:8: field 'roles': wants a mapping with the fields of Role, not a list\n");
}

static void one_problem_does_not_hide_the_others_past_a_hundred(void **state)
{
    (void)state;
    struct text yaml, problems;
    text_init(&yaml, 0);
    text_init(&problems, 0);
    for (int i = 0; i < 150; i++)
        text_addf(&yaml, "unknown%d: 1\n", i);
    ProtobufCMessage *message = NULL;
    assert_int_equal(text_format_parse("f", text_get(&yaml), yaml.len, &pb__job_spec__descriptor,
                                       &message, &problems),
                     STATUS_INVALID);
    assert_non_null(strstr(text_get(&problems), "f: and 50 more problems\n"));
    text_fini(&yaml);
    text_fini(&problems);
}

/* Equal on the wire, which is all that a message is. */
static bool same(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    size_t size = protobuf_c_message_get_packed_size(a);
    if (size != protobuf_c_message_get_packed_size(b))
        return false;
    uint8_t *x = mem_alloc(size + 1), *y = mem_alloc(size + 1);
    protobuf_c_message_pack(a, x);
    protobuf_c_message_pack(b, y);
    bool equal = memcmp(x, y, size) == 0;
    mem_free(x);
    mem_free(y);
    return equal;
}

static void expect_back(const ProtobufCMessage *message, const struct text *text, uint64_t seed)
{
    ProtobufCMessage *back = NULL;
    struct text problems;
    text_init(&problems, 0);
    if (text_format_parse("f", text_get(text), text->len, message->descriptor, &back, &problems))
        fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, text_get(&problems),
                 text_get(text));
    if (!same(message, back))
        fail_msg("seed %llu came back different:\n%s", (unsigned long long)seed, text_get(text));
    protobuf_c_message_free_unpacked(back, NULL);
    text_fini(&problems);
}

static void any_message_survives_yaml_and_json(void **state)
{
    static const ProtobufCMessageDescriptor *const types[] = {&pb__job_spec__descriptor,
                                                              &pb__job__descriptor,
                                                              &pb__attempt__descriptor,
                                                              &pb__series__descriptor,
                                                              &pb__list_jobs_reply__descriptor,
                                                              &pb__logs_reply__descriptor,
                                                              &pb__node__descriptor,
                                                              &pb__checkpoint__descriptor,
                                                              &pb__desired_seal__descriptor};
    (void)state;
    for (uint64_t run = 0; run < 600; run++) {
        uint64_t seed = run;
        ProtobufCMessage *message = random_message(&seed, types[run % COUNT_OF(types)]);
        struct text out;
        text_init(&out, 0);
        text_format_yaml(message, &out);
        expect_back(message, &out, run);
        for (int style = TEXT_FORMAT_COMPACT; style <= TEXT_FORMAT_PRETTY; style++) {
            text_reset(&out);
            text_format_json(message, (enum text_format_style)style, &out);
            json_t *json = json_loadb(text_get(&out), out.len, JSON_REJECT_DUPLICATES, NULL);
            assert_non_null(json);
            json_decref(json);
            expect_back(message, &out, run);
        }
        ProtobufCMessage *copy = message_copy(message);
        assert_true(same(message, copy));
        protobuf_c_message_free_unpacked(copy, NULL);
        protobuf_c_message_free_unpacked(message, NULL);
        text_fini(&out);
    }
}

static void json_keeps_numbers_exactly(void **state)
{
    (void)state;
    double values[] = {0.1, 3e-4, 1.0 / 3, 5e-324, 1e22, -0.0, NAN, INFINITY, -INFINITY, 100};
    int64_t integers[] = {INT64_MIN, INT64_MAX, (1LL << 53) + 1};
    Pb__Series series = PB__SERIES__INIT;
    series.name = (char[]){"a\"\\\n\x1f\xff/"};
    series.values = values;
    series.n_values = COUNT_OF(values);
    series.integers = integers;
    series.n_integers = COUNT_OF(integers);
    struct text out;
    text_init(&out, 0);
    text_format_json(&series.base, TEXT_FORMAT_COMPACT, &out);
    assert_string_equal(
        text_get(&out),
        "{\"name\":\"a\\\"\\\\\\n\\u001f\xef\xbf\xbd/\",\"values\":[0.1,0.0003,0.3333333333333333,"
        "5e-324,1e+22,-0.0,\"NaN\",\"Infinity\",\"-Infinity\",100],\"integers\":["
        "\"-9223372036854775808\",\"9223372036854775807\",\"9007199254740993\"]}");
    text_fini(&out);
}

static void json_leaves_unset_fields_out(void **state)
{
    (void)state;
    Pb__JobSpec spec = PB__JOB_SPEC__INIT;
    Pb__Role role = PB__ROLE__INIT, *roles[] = {&role};
    struct text out;
    text_init(&out, 0);
    text_format_json(&spec.base, TEXT_FORMAT_COMPACT, &out);
    assert_string_equal(text_get(&out), "{}");
    text_reset(&out);
    spec.roles = roles;
    spec.n_roles = 1;
    spec.on_unreachable = 77;
    spec.has_on_unreachable = 1;
    text_format_json(&spec.base, TEXT_FORMAT_PRETTY, &out);
    assert_string_equal(text_get(&out), "{\n  \"roles\": [\n    {}\n  ],\n"
                                        "  \"on_unreachable\": \"77\"\n}\n");
    text_fini(&out);
}

static void expect_set(Pb__JobSpec *spec, const char *assignment, const char *problem)
{
    struct text problems;
    text_init(&problems, 0);
    enum status st = text_format_set(&spec->base, assignment, &problems);
    assert_string_equal(text_get(&problems), problem);
    assert_int_equal(st, *problem ? STATUS_INVALID : STATUS_OK);
    text_fini(&problems);
}

static void set_changes_one_field(void **state)
{
    (void)state;
    Pb__JobSpec *spec = parse(good, "");
    expect_set(spec, "roles.0.workers=4", "");
    expect_set(spec, "roles.trainer.env.B=x: [y=", "");
    expect_set(spec, "roles.0.env.NEW.ONE=", "");
    expect_set(spec, "roles.0.command=[a, b]", "");
    expect_set(spec, "success.target_samples=9000000000", "");
    expect_set(spec, "labels={k: v}", "");
    expect_set(spec, "name=true", "");
    assert_int_equal(spec->roles[0]->workers, 4);
    assert_string_equal(spec->roles[0]->env[1]->value, "x: [y=");
    assert_string_equal(spec->roles[0]->env[2]->name, "NEW.ONE");
    assert_int_equal(spec->roles[0]->n_command, 2);
    assert_int_equal(spec->success->target_samples, 9000000000);
    assert_int_equal(spec->n_labels, 1);
    assert_string_equal(spec->name, "true");
    drop(spec);
}

static void set_reaches_one_entry_of_a_list(void **state)
{
    (void)state;
    Pb__JobSpec *spec = parse(good, "");
    expect_set(spec, "roles.0.command=[a, b, c]", "");
    expect_set(spec, "roles[0].command[2]=x: [y", "");
    expect_set(spec, "roles[trainer].command.0=python3", "");
    expect_set(spec, "roles[0].workers_max=8", "");
    expect_set(spec, "roles[trainer].workers.min=3", "");
    expect_set(spec, "roles[0].env[A.B]=1", "");
    assert_string_equal(spec->roles[0]->command[0], "python3");
    assert_string_equal(spec->roles[0]->command[1], "b");
    assert_string_equal(spec->roles[0]->command[2], "x: [y");
    assert_int_equal(spec->roles[0]->n_command, 3);
    assert_int_equal(spec->roles[0]->workers_min, 3);
    assert_int_equal(spec->roles[0]->workers_max, 8);
    assert_string_equal(spec->roles[0]->env[spec->roles[0]->n_env - 1]->name, "A.B");
    expect_set(spec, "roles[trainr].workers=1",
               "set 'roles[trainr].workers=1': field 'roles' has no entry 'trainr'; did you mean "
               "'trainer'?\n");
    expect_set(spec, "roles[0].command[3]=x",
               "set 'roles[0].command[3]=x': field 'command' has no entry '3'; give an index "
               "0..2\n");
    expect_set(spec, "roles[0].command[1].x=y",
               "set 'roles[0].command[1].x=y': an entry of 'command' has no fields\n");
    expect_set(spec, "roles[0.workers=1",
               "set 'roles[0.workers=1': no ']' and '.' behind '[0.workers'\n");
    expect_set(spec, "roles[0]workers=1",
               "set 'roles[0]workers=1': no ']' and '.' behind '[0]workers'\n");
    expect_set(spec, "roles[0].workers.mid=1",
               "set 'roles[0].workers.mid=1': field 'workers' has no fields of its own\n");
    expect_set(spec, "roles[0].workes=1",
               "set 'roles[0].workes=1': unknown field 'workes' in Role; did you mean "
               "'workers'?\n");
    drop(spec);
}

static void set_names_the_assignment_and_changes_nothing_on_failure(void **state)
{
    (void)state;
    Pb__JobSpec *spec = parse(good, "");
    size_t size = protobuf_c_message_get_packed_size(&spec->base);
    expect_set(spec, "roles.0.workers=x",
               "set 'roles.0.workers=x': field 'workers': 'x' is not a whole number from 1 to "
               "100000\n");
    expect_set(spec, "roles.1.workers=1",
               "set 'roles.1.workers=1': field 'roles' has no entry "
               "'1'; give its name or an index 0..0\n");
    expect_set(spec, "workers=1",
               "set 'workers=1': unknown field 'workers' in JobSpec, which has "
               "name, project, priority, labels, roles, code, time_limit_s, "
               "time_estimate_s, grace_ms, grace_ms_max, restart, phases, "
               "success, on_unreachable, checkpoint, hold\n");
    expect_set(spec, "phases.zzz=1",
               "set 'phases.zzz=1': unknown field 'zzz' in Phases, which "
               "has start_ms, first_step_ms, step_ms, save_ms\n");
    expect_set(spec, "name", "set 'name': wants field=value, such as roles.0.workers=4\n");
    expect_set(spec, "roles.0=x",
               "set 'roles.0=x': '0' is a whole entry of 'roles'; name its "
               "field\n");
    expect_set(spec, "name.x=1", "set 'name.x=1': field 'name' has no fields of its own\n");
    expect_set(spec, "hold=", "set 'hold=': field 'hold': no value behind '='\n");
    assert_int_equal(protobuf_c_message_get_packed_size(&spec->base), size);
    drop(spec);
}

static void load_reads_files_and_says_which_is_missing(void **state)
{
    const char *path = unit_path(*state, "job.yaml");
    ProtobufCMessage *message = NULL;
    struct text problems;
    text_init(&problems, 0);
    assert_int_equal(text_format_load(path, &pb__job_spec__descriptor, &message, &problems),
                     STATUS_NOT_FOUND);
    assert_non_null(strstr(text_get(&problems), "open: No such file"));
    unit_write(path, "\xef\xbb\xbfname: with a mark\n");
    text_reset(&problems);
    assert_int_equal(text_format_load(path, &pb__job_spec__descriptor, &message, &problems),
                     STATUS_OK);
    assert_string_equal(((Pb__JobSpec *)message)->name, "with a mark");
    drop((Pb__JobSpec *)message);
    text_fini(&problems);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_job_with_short_forms),
        cmocka_unit_test(all_problems_come_in_one_run_with_their_places),
        cmocka_unit_test(refuses_what_is_not_one_yaml_mapping),
        cmocka_unit_test(bounds_hold_before_they_cost),
        cmocka_unit_test(aliases_cannot_multiply),
        cmocka_unit_test(one_problem_does_not_hide_the_others_past_a_hundred),
        cmocka_unit_test(any_message_survives_yaml_and_json),
        cmocka_unit_test(json_keeps_numbers_exactly),
        cmocka_unit_test(json_leaves_unset_fields_out),
        cmocka_unit_test(set_changes_one_field),
        cmocka_unit_test(set_reaches_one_entry_of_a_list),
        cmocka_unit_test(set_names_the_assignment_and_changes_nothing_on_failure),
        cmocka_unit_test_setup_teardown(load_reads_files_and_says_which_is_missing, unit_dir_setup,
                                        unit_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
