/* test_job_file.c - problems of a job file, all in one run. */
#include "proto/text/job_file.h"
#include "tests/unit/unit.h"

static enum status no_pack(void *arg, Pb__Code *code, struct error *err)
{
    (void)arg;
    return error_set(err, STATUS_NOT_FOUND, "%s: no such directory", code->path);
}

static void expect(const char *yaml, const char *const *sets, size_t count, const char *wanted)
{
    struct job_file file = {.name = "j.yaml",
                            .yaml = yaml,
                            .len = strlen(yaml),
                            .sets = sets,
                            .sets_count = count,
                            .pack = strstr(yaml, "gone") ? no_pack : NULL};
    Pb__JobSpec *spec = NULL;
    struct text problems;
    text_init(&problems, 0);
    enum status st = job_file_parse(&file, &spec, &problems);
    assert_string_equal(text_get(&problems), wanted);
    assert_int_equal(st, *wanted ? STATUS_INVALID : STATUS_OK);
    assert_true((spec != NULL) == (st == STATUS_OK));
    if (spec)
        protobuf_c_message_free_unpacked(&spec->base, NULL);
    text_fini(&problems);
}

static void what_is_meant_wrong_has_its_place_too(void **state)
{
    (void)state;
    expect("name: \"a\\tb\"\n"
           "prioritty: 5\n"
           "roles:\n"
           "- name: r\n"
           "  command: python train.py\n"
           "  workers: 0\n"
           "  env: {A=B: c}\n"
           "- name: s\n",
           NULL, 0,
           "j.yaml:1:7: field 'name': 'a?b' holds a control character\n"
           "j.yaml:2:1: unknown field 'prioritty' in JobSpec; did you mean 'priority'?\n"
           "j.yaml:5:12: field 'command': wants a list such as [a, b], not a single value\n"
           "j.yaml:6:12: field 'roles.0.workers': 0 is out of range 1..100000, nearest 1\n"
           "j.yaml:7:8: field 'roles.0.env.0': name 'A=B' must not contain '='\n"
           "j.yaml:8:3: field 'roles.1.command': is empty; give the program and its arguments, "
           "e.g. [python3, train.py]\n");
}

static void sets_come_behind_the_file(void **state)
{
    static const char *const sets[] = {"roles.0.workers=2", "name=x"};
    static const char *const bad[] = {"roles.0.workers=0", "nane=x"};
    static const char yaml[] = "roles: [{name: r, command: [a], workers: 0}]\n";
    (void)state;
    expect(yaml, sets, 2, "");
    expect(yaml, bad, 2,
           "set 'nane=x': unknown field 'nane' in JobSpec; did you mean 'name'?\n"
           "j.yaml:1:1: field 'name': is empty; 1..253 bytes are needed\n"
           "j.yaml:1:42: field 'roles.0.workers': 0 is out of range 1..100000, nearest 1\n");
}

static void code_to_pack_is_no_problem(void **state)
{
    (void)state;
    expect("name: a\ncode: {path: src}\nroles: [{name: r, command: [a]}]\n", NULL, 0, "");
    expect("name: a\ncode: {}\nroles: [{name: r, command: [a]}]\n", NULL, 0,
           "j.yaml:2:7: field 'code': needs a path\n");
    expect("name: a\ncode:\n  path: gone\nroles: [{name: r, command: [a], workers: 0}]\nnane: b\n",
           NULL, 0,
           "j.yaml:3:9: field 'code.path': gone: no such directory\n"
           "j.yaml:4:42: field 'roles.0.workers': 0 is out of range 1..100000, nearest 1\n"
           "j.yaml:5:1: unknown field 'nane' in JobSpec; did you mean 'name'?\n");
    expect("", NULL, 0,
           "j.yaml:1:1: the file is empty; a job file is a mapping that starts with 'name:'\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_meant_wrong_has_its_place_too),
        cmocka_unit_test(sets_come_behind_the_file),
        cmocka_unit_test(code_to_pack_is_no_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
