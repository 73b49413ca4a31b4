/* test_fsck_vault.c - one vault's directory, checked without a daemon. */
#include "base/file.h"
#include "checkpoint/vault.h"
#include "ctl/fsck_vault.h"
#include "ctl/verb.h"
#include "tests/unit/unit.h"
#include <unistd.h>

static void commit(const char *vault, const char *path)
{
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    Pb__CheckpointPart *part = NULL;
    struct text manifest;
    char dir[512], digest[65];
    assert_int_equal(vault_part_create(vault, path, "w", 0, -1, -1, dir, sizeof(dir), NULL),
                     STATUS_OK);
    unit_write(unit_path(dir, "model"), "weights");
    assert_int_equal(vault_part_digest(vault, path, "w", 0, NULL, &part, NULL), STATUS_OK);
    part->node = mem_strdup("n1");
    checkpoint.parts = &part;
    checkpoint.n_parts = 1;
    text_init(&manifest, 0);
    vault_manifest_build(&checkpoint, &manifest, digest);
    assert_int_equal(vault_seal(vault, path, manifest.data, manifest.len, NULL), STATUS_OK);
    text_fini(&manifest);
    pb__checkpoint_part__free_unpacked(part, NULL);
}

static void run(struct fsck_report *report, const char *vault, bool repair, bool deep)
{
    fsck_report_init(report, OUTPUT_JSON, repair);
    assert_int_equal(
        fsck_vault_run(&(struct fsck_vault_options){.vault = vault, .repair = repair, .deep = deep},
                       report),
        VERB_OK);
    assert_non_null(report->message.summary);
}

static void whole_ones_are_clean(void **state)
{
    struct fsck_report report;
    commit(*state, "job-7/step-5.1");
    run(&report, *state, false, true);
    assert_int_equal(report.message.n_differences, 0);
    assert_int_equal(report.message.summary->directories, 1);
    assert_true(report.message.summary->bytes >= 7);
    fsck_report_fini(&report);
}

static void damage_is_named_and_stays(void **state)
{
    struct fsck_report report;
    commit(*state, "job-7/step-5.1");
    unit_write(unit_path(*state, "job-7/step-5.1/w-0/model"), "wEights");
    run(&report, *state, true, false);
    assert_int_equal(report.message.n_differences, 0); /* by its sizes */
    fsck_report_fini(&report);
    run(&report, *state, true, true);
    assert_int_equal(report.message.n_differences, 1);
    assert_int_equal(report.message.differences[0]->kind, PB__DIFFERENCE__KIND__PART_DAMAGED);
    assert_int_equal(report.message.differences[0]->outcome, PB__DIFFERENCE__OUTCOME__LEFT);
    assert_non_null(strstr(report.message.differences[0]->text, "w-0/model"));
    assert_int_equal(report.message.summary->left, 1);
    fsck_report_fini(&report);
    assert_int_equal(access(unit_path(*state, "job-7/step-5.1/manifest.json"), F_OK), 0);
}

static void of_leftovers_only_the_rest_of_a_deletion_goes(void **state)
{
    struct fsck_report report;
    assert_int_equal(file_make_dirs(unit_path(*state, "job-7/step-5.1"), 0755, NULL), STATUS_OK);
    assert_int_equal(file_make_dirs(unit_path(*state, "job-7/step-6.1"), 0755, NULL), STATUS_OK);
    unit_write(unit_path(*state, "job-7/step-6.1/deleted"), "x");
    run(&report, *state, false, false);
    assert_int_equal(report.message.n_differences, 2);
    fsck_report_fini(&report);
    run(&report, *state, true, false);
    assert_int_equal(report.message.summary->repaired, 1);
    fsck_report_fini(&report);
    assert_int_equal(access(unit_path(*state, "job-7/step-5.1"), F_OK), 0);
    assert_int_equal(access(unit_path(*state, "job-7/step-6.1"), F_OK), -1);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(whole_ones_are_clean),
        T(damage_is_named_and_stays),
        T(of_leftovers_only_the_rest_of_a_deletion_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
