/* test_save_audit.c - committed checkpoints are read again, and what was found is told. */
#include "checkpoint/vault.h"
#include "tests/unit/agent/agent_rig.h"

static Pb__DesiredVerify verify, *verifies[] = {&verify};
static char digest[65];

static void commit(struct rig *rig)
{
    const char *vault = unit_path(rig->dir, "vault");
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    Pb__CheckpointPart *part = NULL;
    struct text manifest;
    char dir[512];

    assert_int_equal(
        vault_part_create(vault, "job-7/step-5.1", "trainer", 0, -1, -1, dir, sizeof(dir), NULL),
        STATUS_OK);
    unit_write(unit_path(dir, "w"), "weights");
    assert_int_equal(vault_part_digest(vault, "job-7/step-5.1", "trainer", 0, NULL, &part, NULL),
                     STATUS_OK);
    part->node = mem_strdup("host");
    checkpoint.parts = &part;
    checkpoint.n_parts = 1;
    text_init(&manifest, 0);
    vault_manifest_build(&checkpoint, &manifest, digest);
    assert_int_equal(vault_seal(vault, "job-7/step-5.1", manifest.data, manifest.len, NULL),
                     STATUS_OK);
    text_fini(&manifest);
    pb__checkpoint_part__free_unpacked(part, NULL);
    pb__desired_verify__init(&verify);
    verify.has_checkpoint = true;
    verify.checkpoint = 44;
    verify.vault = (char *)(uintptr_t) "main";
    verify.path = (char *)(uintptr_t) "job-7/step-5.1";
    verify.manifest_digest = digest;
    rig->desired.verifies = verifies;
    rig->desired.n_verifies = 1;
}

static bool is_verified(struct rig *rig)
{
    return rig->verified != NULL;
}

static void end(struct rig *rig)
{
    rig->desired.n_verifies = 0;
    rig->desired.verifies = NULL;
}

static void what_is_good_is_told_with_its_identity(void **state) /* M51 */
{
    struct rig *rig = *state;
    commit(rig);
    rig_until(rig, is_verified);
    assert_null(rig->verified->error);
    assert_int_equal(rig->verified->checkpoint, 44);
    assert_int_equal(rig->verified->n_parts, 1);
    assert_int_equal(strlen(rig->verified->parts[0]->tree_digest), 64);
    end(rig);
}

static void what_is_bad_is_told_with_the_file(void **state) /* M59 */
{
    struct rig *rig = *state;
    commit(rig);
    unit_write(unit_path(rig->dir, "vault/job-7/step-5.1/trainer-0/w"), "wEights");
    rig_until(rig, is_verified);
    assert_non_null(strstr(rig->verified->error, "trainer-0/w"));
    end(rig);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(what_is_good_is_told_with_its_identity),
        T(what_is_bad_is_told_with_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
