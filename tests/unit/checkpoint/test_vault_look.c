/* test_vault_look.c - a vault directory by directory: what is whole, what is not, what is moved. */
#include "tests/unit/unit.h"

#include "checkpoint/vault.h"
#include "checkpoint/vault_look.h"
#include "checkpoint/vault_manifest.h"
#include <sys/stat.h>
#include <unistd.h>

#define S(x) PB__VAULT_FOUND__PART_STATE__##x

static void free_part(Pb__CheckpointPart *part)
{
    pb__checkpoint_part__free_unpacked(part, NULL);
}

/* Two parts, the second written by another node; its manifest sealed. */
static void commit(const char *vault, const char *path)
{
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    Pb__CheckpointPart *parts[2];
    struct text manifest;
    char dir[512], digest[65];

    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(vault_part_create(vault, path, "w", rank, -1, -1, dir, sizeof(dir), NULL),
                         STATUS_OK);
        unit_write(unit_path(dir, "model"), "weights");
        assert_int_equal(vault_part_digest(vault, path, "w", rank, NULL, &parts[rank], NULL),
                         STATUS_OK);
        parts[rank]->node = mem_strdup(rank ? "n2" : "n1");
    }
    checkpoint.job = 7;
    checkpoint.step = 5;
    checkpoint.attempt = 1;
    checkpoint.parts = parts;
    checkpoint.n_parts = 2;
    text_init(&manifest, 0);
    vault_manifest_build(&checkpoint, &manifest, digest);
    assert_int_equal(vault_seal(vault, path, manifest.data, manifest.len, NULL), STATUS_OK);
    text_fini(&manifest);
    free_part(parts[0]);
    free_part(parts[1]);
}

/* The next that is found, in steps of one byte; NULL: there is none. */
static Pb__VaultFound *next(struct vault_look *look, unsigned *pieces)
{
    Pb__VaultFound *found = NULL;
    bool over = false;
    struct error err;

    for (*pieces = 0; !found && !over; ++*pieces)
        assert_int_equal(vault_look_step(look, 1, &found, &over, &err), STATUS_OK);
    return found;
}

static Pb__VaultFound *only(struct vault_look_options options)
{
    SCOPED(vault_look_destroy) struct vault_look *look = NULL;
    struct error err;
    unsigned pieces;

    assert_int_equal(vault_look_begin(&options, &look, &err), STATUS_OK);
    Pb__VaultFound *found = next(look, &pieces);
    assert_non_null(found);
    Pb__VaultFound *none = next(look, &pieces);
    assert_null(none);
    return found;
}

static void free_found(Pb__VaultFound *found)
{
    pb__vault_found__free_unpacked(found, NULL);
}

static void expect_parts(const struct vault_look_options *options, Pb__VaultFound__PartState first,
                         Pb__VaultFound__PartState second)
{
    Pb__VaultFound *found = only(*options);

    assert_int_equal(found->kind, PB__VAULT_FOUND__KIND__SEALED);
    assert_int_equal(found->n_parts, 2);
    assert_int_equal(found->parts[0]->state, first);
    assert_int_equal(found->parts[1]->state, second);
    for (size_t i = 0; i < 2; i++)
        assert_true((found->parts[i]->state == S(WHOLE)) == !found->parts[i]->text);
    free_found(found);
}

static void sizes_first_and_bytes_where_they_are_asked_for(void **state)
{
    struct vault_look_options options = {.vault = *state};

    commit(*state, "job-7/step-5.1");
    expect_parts(&options, S(WHOLE), S(WHOLE));
    unit_write(unit_path(*state, "job-7/step-5.1/w-1/model"), "wEights");
    expect_parts(&options, S(WHOLE), S(WHOLE));
    options.deep = true;
    expect_parts(&options, S(WHOLE), S(DAMAGED));
    options.node = "n1"; /* the other part is not this node's to read */
    expect_parts(&options, S(WHOLE), S(WHOLE));
    options.node = "n2";
    expect_parts(&options, S(WHOLE), S(DAMAGED));
    assert_int_equal(truncate(unit_path(*state, "job-7/step-5.1/w-0/model"), 3), 0);
    assert_int_equal(unlink(unit_path(*state, "job-7/step-5.1/w-1/model")), 0);
    expect_parts(&options, S(DAMAGED), S(MISSING));
}

static void manifests_come_with_their_files_where_they_are_needed(void **state)
{
    struct vault_look_options options = {.vault = *state};

    commit(*state, "job-7/step-5.1");
    Pb__VaultFound *found = only(options);
    assert_int_equal(found->manifest->job, 7);
    assert_int_equal(found->manifest->n_parts, 2);
    assert_int_equal(found->manifest->parts[0]->n_files, 0);
    assert_int_equal(strlen(found->manifest_digest), 64);
    free_found(found);
    options.whole = true;
    options.path = "job-7/step-5.1";
    found = only(options);
    assert_string_equal(found->path, options.path);
    assert_int_equal(found->manifest->parts[1]->n_files, 1);
    free_found(found);
}

static void one_job_or_all(void **state)
{
    SCOPED(vault_look_destroy) struct vault_look *look = NULL;
    unsigned pieces;

    commit(*state, "job-7/step-5.1");
    commit(*state, "job-71/step-5.1");
    free_found(only((struct vault_look_options){.vault = *state, .job = 7}));
    assert_int_equal(
        vault_look_begin(&(struct vault_look_options){.vault = *state, .job = 8}, &look, NULL),
        STATUS_OK);
    Pb__VaultFound *none = next(look, &pieces);
    assert_null(none);
    assert_true(vault_look_has_others(look));
    vault_look_destroy(TAKE(look));
    assert_int_equal(
        vault_look_begin(&(struct vault_look_options){.vault = "/nowhere/at/all"}, &look, NULL),
        STATUS_NOT_FOUND);
}

static void slots_by_incarnation(void **state)
{
    struct vault_look_options options = {.vault = *state, .slots = true};

    assert_int_equal(file_make_dirs(unit_path(*state, "job-7/3.1/w-0"), 0700, NULL), STATUS_OK);
    unit_write(unit_path(*state, "job-7/3.1/w-0/slot-0"), "x");
    Pb__VaultFound *found = only(options);
    assert_int_equal(found->kind, PB__VAULT_FOUND__KIND__SLOT);
    assert_string_equal(found->path, "job-7/3.1");
    free_found(found);
}

static void what_is_set_aside_is_whole_there(void **state)
{
    struct error err;
    struct stat st;

    commit(*state, "job-7/step-5.1");
    assert_int_equal(vault_look_set_aside(*state, "job-7/step-5.1", &err), STATUS_OK);
    assert_int_equal(stat(unit_path(*state, "job-7/step-5.1"), &st), -1);
    assert_int_equal(vault_verify(*state, "lost+found/job-7.step-5.1", NULL, true, &err),
                     STATUS_OK);
    commit(*state, "job-7/step-5.1"); /* another one of that name */
    assert_int_equal(vault_look_set_aside(*state, "job-7/step-5.1", &err), STATUS_OK);
    assert_int_equal(vault_verify(*state, "lost+found/job-7.step-5.1.again-2", NULL, true, &err),
                     STATUS_OK);
    assert_int_equal(vault_look_set_aside(*state, "job-7/step-5.1", &err), STATUS_NOT_FOUND);
    assert_int_equal(vault_look_set_aside(*state, "../x", &err), STATUS_INVALID);
    assert_int_equal(vault_look_set_aside(*state, "lost+found/job-7.step-5.1", &err),
                     STATUS_INVALID);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(sizes_first_and_bytes_where_they_are_asked_for),
        T(manifests_come_with_their_files_where_they_are_needed),
        T(one_job_or_all),
        T(slots_by_incarnation),
        T(what_is_set_aside_is_whole_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
