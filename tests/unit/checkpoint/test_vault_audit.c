/* test_vault_audit.c - a checkpoint read again in pieces: identity, and every kind of damage. */
#include "checkpoint/digest.h"
#include "checkpoint/vault.h"
#include "checkpoint/vault_audit.h"
#include "tests/unit/unit.h"
#include <unistd.h>

#define STEP "job-7/step-120.3"

struct made {
    char *dir;
    char digest[65];
};

/* Two parts, of two nodes; sealed. */
static void make(struct made *made)
{
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    Pb__CheckpointPart *parts[2] = {NULL, NULL};
    struct text manifest;
    char part[512];

    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(
            vault_part_create(made->dir, STEP, "trainer", rank, -1, -1, part, sizeof(part), NULL),
            STATUS_OK);
        unit_write(unit_path(part, "b"), rank ? "more" : "weights");
        unit_write(unit_path(part, "a"), "");
        assert_int_equal(
            vault_part_digest(made->dir, STEP, "trainer", rank, NULL, &parts[rank], NULL),
            STATUS_OK);
        parts[rank]->node = mem_strdup(rank ? "n2" : "n1");
    }
    checkpoint.parts = parts;
    checkpoint.n_parts = 2;
    text_init(&manifest, 0);
    vault_manifest_build(&checkpoint, &manifest, made->digest);
    assert_int_equal(vault_seal(made->dir, STEP, manifest.data, manifest.len, NULL), STATUS_OK);
    text_fini(&manifest);
    for (int i = 0; i < 2; i++)
        pb__checkpoint_part__free_unpacked(parts[i], NULL);
}

static enum status read_it(const struct made *made, const char *node, uint64_t piece,
                           struct vault_audit **out, struct error *err)
{
    bool over = false;
    enum status st = vault_audit_begin(made->dir, STEP, made->digest, node, out, err);
    for (int i = 0; st == STATUS_OK && !over && i < 1000; i++)
        st = vault_audit_step(*out, piece, &over, err);
    assert_true(over || st != STATUS_OK);
    return st;
}

static void identity_is_the_sha256_of_the_list_of_files(void **state)
{
    struct made made = {.dir = *state};
    const struct vault_audit_part *parts;
    char file[65], empty[65], want[65];
    make(&made);
    for (uint64_t piece = 1; piece < 100; piece += 33) {
        SCOPED(vault_audit_destroy) struct vault_audit *audit = NULL;
        assert_int_equal(read_it(&made, NULL, piece, &audit, NULL), STATUS_OK);
        assert_int_equal(vault_audit_parts(audit, &parts), 2);
        digest_sha256("", 0, empty);
        digest_sha256("weights", 7, file);
        SCOPED_TEXT char *lines = mem_printf("%s  trainer-0/a\n%s  trainer-0/b\n", empty, file);
        digest_sha256(lines, strlen(lines), want);
        assert_string_equal(parts[0].sha256, want);
        assert_string_equal(parts[1].role, "trainer");
        assert_int_equal(parts[1].rank, 1);
        assert_int_equal(vault_audit_bytes(audit), 11);
    }
}

static void a_node_reads_its_own_parts(void **state)
{
    struct made made = {.dir = *state};
    const struct vault_audit_part *parts;
    SCOPED(vault_audit_destroy) struct vault_audit *audit = NULL;
    make(&made);
    assert_int_equal(file_remove_tree(unit_path(made.dir, STEP "/trainer-0"), NULL), STATUS_OK);
    assert_int_equal(read_it(&made, "n2", 1, &audit, NULL), STATUS_OK);
    assert_int_equal(vault_audit_parts(audit, &parts), 1);
    assert_int_equal(parts[0].rank, 1);
}

static void damage(const struct made *made, const char *text, enum status want, const char *what)
{
    SCOPED(vault_audit_destroy) struct vault_audit *audit = NULL;
    struct error err;
    const char *path = unit_path(made->dir, STEP "/trainer-0/b");
    if (text)
        unit_write(path, text);
    else
        assert_int_equal(unlink(path), 0);
    assert_int_equal(read_it(made, NULL, 3, &audit, &err), want);
    if (what && !strstr(err.text, what))
        fail_msg("%s", err.text);
}

static void every_kind_of_damage_names_its_file(void **state) /* M51, M59 */
{
    struct made made = {.dir = *state};
    make(&made);
    damage(&made, "weights", STATUS_OK, NULL); /* the same bytes */
    damage(&made, "wEights", STATUS_DATA_LOSS, "trainer-0/b does not match");
    damage(&made, "weight", STATUS_DATA_LOSS, "trainer-0/b has 6 bytes");
    damage(&made, "weights.", STATUS_DATA_LOSS, "trainer-0/b has 8 bytes");
    damage(&made, NULL, STATUS_DATA_LOSS, "trainer-0/b is missing");
    unit_write(unit_path(made.dir, STEP "/manifest.json"), "{}");
    SCOPED(vault_audit_destroy) struct vault_audit *audit = NULL;
    assert_int_equal(read_it(&made, NULL, 3, &audit, NULL), STATUS_DATA_LOSS);
}

/* A vault that is not mounted says nothing about bytes. */
static void a_vault_that_is_away_is_no_damage(void **state) /* K11 */
{
    struct made made = {.dir = (char *)(uintptr_t) "/nowhere/at/all"};
    SCOPED(vault_audit_destroy) struct vault_audit *audit = NULL;
    (void)state;
    assert_int_equal(read_it(&made, NULL, 3, &audit, NULL), STATUS_NOT_FOUND);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(identity_is_the_sha256_of_the_list_of_files),
        T(a_node_reads_its_own_parts),
        T(every_kind_of_damage_names_its_file),
        T(a_vault_that_is_away_is_no_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
