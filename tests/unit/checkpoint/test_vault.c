/* test_vault.c - a vault through the life of a checkpoint, and against what workers may leave in
 * it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/digest.h"
#include "checkpoint/vault.h"

#define STEP "job-7/step-120.3"

struct fixture {
    char vault[64];
    struct text manifest;
    char digest[65];
};

static int vault_setup(void **state)
{
    struct fixture *f = NEW(struct fixture);
    snprintf(f->vault, sizeof f->vault, "/tmp/rondo-vault-XXXXXX");
    text_init(&f->manifest, 0);
    *state = f;
    return mkdtemp(f->vault) ? 0 : -1;
}

static int vault_teardown(void **state)
{
    struct fixture *f = *state;
    text_fini(&f->manifest);
    if (file_remove_tree(f->vault, NULL) != STATUS_OK)
        return -1;
    mem_free(f);
    return 0;
}

static void put(const char *dir, const char *name, const char *bytes)
{
    char path[512];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, strlen(bytes), file), strlen(bytes));
    fclose(file);
}

static void part(struct fixture *f, uint32_t rank, char out[512])
{
    assert_int_equal(vault_part_create(f->vault, STEP, "trainer", rank, -1, -1, out, 512, NULL),
                     STATUS_OK);
}

/* Two parts with files, and the manifest of them; sealed when asked. */
static void checkpoint_with_two_parts(struct fixture *f, bool seal)
{
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    Pb__CheckpointPart *parts[2] = {NULL, NULL};
    char dir[512], sub[600];

    part(f, 0, dir);
    put(dir, "model.pt", "weights");
    snprintf(sub, sizeof sub, "%s/optimizer", dir);
    assert_int_equal(mkdir(sub, 0700), 0);
    put(sub, "state \"quoted\".pt", "moments");
    part(f, 1, dir); /* stays empty: rank 1 has nothing to save */
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(
            vault_part_digest(f->vault, STEP, "trainer", rank, NULL, &parts[1 - rank], NULL),
            STATUS_OK);
    checkpoint.job = 7;
    checkpoint.attempt = 3;
    checkpoint.step = 120;
    checkpoint.samples = INT64_C(1) << 53;
    checkpoint.parts = parts;
    checkpoint.n_parts = 2;
    vault_manifest_build(&checkpoint, &f->manifest, f->digest);
    for (int i = 0; i < 2; i++)
        pb__checkpoint_part__free_unpacked(parts[i], NULL);
    if (seal)
        assert_int_equal(vault_seal(f->vault, STEP, f->manifest.data, f->manifest.len, NULL),
                         STATUS_OK);
}

static void paths_name_job_step_and_attempt(void **state)
{
    char path[64];
    (void)state;
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;
    key.job = 7;
    key.attempt = 3;
    key.incarnation = 1;
    vault_checkpoint_path(&key, 120, path, sizeof path);
    assert_string_equal(path, STEP);
    key.incarnation = 2;
    vault_checkpoint_path(&key, 120, path, sizeof path);
    assert_string_equal(path, STEP ".2");
}

static void part_lists_its_files_in_order(void **state)
{
    struct fixture *f = *state;
    Pb__CheckpointPart *got = NULL;
    struct digest_file want;
    char dir[512], path[600];

    part(f, 0, dir);
    put(dir, "b", "2");
    put(dir, "a", "1");
    put(dir, "c", "");
    assert_int_equal(vault_part_digest(f->vault, STEP, "trainer", 0, NULL, &got, NULL), STATUS_OK);
    assert_int_equal(got->n_files, 3);
    assert_string_equal(got->files[0]->path, "trainer-0/a");
    assert_string_equal(got->files[2]->path, "trainer-0/c");
    snprintf(path, sizeof path, "%s/a", dir);
    assert_int_equal(digest_file(path, false, &want, NULL), STATUS_OK);
    assert_string_equal(got->files[0]->xxh3, want.xxh3);
    assert_int_equal(got->files[0]->crc32c, want.crc32c);
    pb__checkpoint_part__free_unpacked(got, NULL);
}

static void part_starts_empty_after_a_torn_save(void **state)
{
    struct fixture *f = *state;
    Pb__CheckpointPart *got = NULL;
    char dir[512];

    part(f, 0, dir);
    put(dir, "old", "stale");
    part(f, 0, dir);
    assert_int_equal(vault_part_digest(f->vault, STEP, "trainer", 0, NULL, &got, NULL), STATUS_OK);
    assert_int_equal(got->n_files, 0);
    pb__checkpoint_part__free_unpacked(got, NULL);
}

static void sealed_checkpoint_verifies_and_is_closed(void **state)
{
    struct fixture *f = *state;
    char dir[512];

    checkpoint_with_two_parts(f, true);
    assert_int_equal(vault_verify(f->vault, STEP, f->digest, true, NULL), STATUS_OK);
    assert_int_equal(vault_verify(f->vault, STEP, NULL, false, NULL), STATUS_OK);
    assert_int_equal(vault_part_create(f->vault, STEP, "trainer", 0, -1, -1, dir, 512, NULL),
                     STATUS_EXISTS);
}

static void unsealed_checkpoint_is_not_found(void **state)
{
    struct fixture *f = *state;
    checkpoint_with_two_parts(f, false);
    assert_int_equal(vault_verify(f->vault, STEP, NULL, true, NULL), STATUS_NOT_FOUND);
}

static void manifest_is_in_stable_order(void **state)
{
    struct fixture *f = *state;
    const char *first, *second;
    checkpoint_with_two_parts(f, false); /* parts were given as 1, 0 */
    first = strstr(f->manifest.data, "\"rank\": 0");
    second = strstr(f->manifest.data, "\"rank\": 1");
    assert_true(first && second && first < second);
    assert_non_null(strstr(f->manifest.data, "9007199254740992"));
}

static void seal_is_idempotent_and_never_replaces(void **state)
{
    struct fixture *f = *state;
    checkpoint_with_two_parts(f, true);
    assert_int_equal(vault_seal(f->vault, STEP, f->manifest.data, f->manifest.len, NULL),
                     STATUS_OK);
    assert_int_equal(vault_seal(f->vault, STEP, "{}", 2, NULL), STATUS_ABORTED);
    assert_int_equal(vault_verify(f->vault, STEP, f->digest, true, NULL), STATUS_OK);
}

struct sealer {
    struct fixture *f;
    char bytes[16];
    enum status status;
};

static void *seal_thread(void *arg)
{
    struct sealer *s = arg;
    s->status = vault_seal(s->f->vault, STEP, s->bytes, strlen(s->bytes), NULL);
    return NULL;
}

static void of_two_sealers_one_wins(void **state)
{
    struct fixture *f = *state;
    char dir[512];
    part(f, 0, dir);
    for (int round = 0; round < 20; round++) {
        struct sealer sealers[4];
        pthread_t threads[4];
        int won = 0;
        for (int i = 0; i < 4; i++) {
            sealers[i].f = f;
            snprintf(sealers[i].bytes, sizeof sealers[i].bytes, "{\"v\":%d}", i);
            assert_int_equal(pthread_create(&threads[i], NULL, seal_thread, &sealers[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            won += sealers[i].status == STATUS_OK;
            if (sealers[i].status != STATUS_OK)
                assert_int_equal(sealers[i].status, STATUS_ABORTED);
        }
        assert_int_equal(won, 1);
        snprintf(dir, sizeof dir, "%s/" STEP "/manifest.json", f->vault);
        assert_int_equal(unlink(dir), 0);
    }
}

/* Overwrites one byte, or cuts the file, and expects DATA_LOSS that names it. */
static void damage(struct fixture *f, const char *name, off_t at, bool cut, bool deep)
{
    char path[512];
    struct error err = {0};
    int fd;
    snprintf(path, sizeof path, "%s/" STEP "/%s", f->vault, name);
    fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    if (cut)
        assert_int_equal(ftruncate(fd, at), 0);
    else
        assert_int_equal(pwrite(fd, "X", 1, at), 1);
    close(fd);
    assert_int_equal(vault_verify(f->vault, STEP, f->digest, deep, &err), STATUS_DATA_LOSS);
    assert_non_null(strstr(err.text, strrchr(name, '/') ? strrchr(name, '/') + 1 : name));
}

static void flipped_byte_is_found(void **state) /* M59 */
{
    checkpoint_with_two_parts(*state, true);
    damage(*state, "trainer-0/model.pt", 3, false, true);
}

static void cut_file_is_found_by_its_size_alone(void **state)
{
    checkpoint_with_two_parts(*state, true);
    damage(*state, "trainer-0/model.pt", 3, true, false);
}

static void changed_manifest_is_found(void **state)
{
    checkpoint_with_two_parts(*state, true);
    damage(*state, "manifest.json", 5, false, false);
}

static void manifest_without_digests_fails_closed(void **state) /* M59 */
{
    struct fixture *f = *state;
    const char *cases[] = {
        "{}",
        "[]",
        "{\"format\": \"rondo-checkpoint-1\"}",
        "{\"format\": \"rondo-checkpoint-1\", \"id\": 0, \"job\": 7, \"attempt\": 3, \"step\": 1, "
        "\"samples\": 0, \"parent\": 0, \"world\": 1, \"created_us\": 0, \"parts\": [{\"role\": "
        "\"t\", \"rank\": 0, \"node\": \"\", \"samples\": 0, \"files\": [{\"path\": \"t-0/a\", "
        "\"bytes\": 0, \"crc32c\": 0}]}]}",
        "{\"format\": \"rondo-checkpoint-1\", \"id\": 0, \"job\": 7, \"attempt\": 3, \"step\": 1, "
        "\"samples\": 0, \"parent\": 0, \"world\": 1, \"created_us\": 0, \"parts\": [{\"role\": "
        "\"t\", \"rank\": 0, \"node\": \"\", \"samples\": 0, \"files\": [{\"path\": \"../a\", "
        "\"bytes\": 0, \"crc32c\": 0, \"xxh3\": \"99aa06d3014798d86001c324468d497f\"}]}]}",
    };
    char dir[512];
    part(f, 0, dir);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(dir, sizeof dir, "%s/" STEP, f->vault);
        put(dir, "manifest.json", cases[i]);
        assert_int_equal(vault_verify(f->vault, STEP, NULL, true, NULL), STATUS_DATA_LOSS);
    }
}

/* A sharded checkpoint of one rank, sealed; layout: what the manifest says of it. */
static enum status sharded(struct fixture *f, const char *layout, const char *of_part)
{
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    Pb__CheckpointPart *got = NULL;
    char dir[512];

    assert_int_equal(file_remove_tree(f->vault, NULL), STATUS_OK);
    assert_int_equal(mkdir(f->vault, 0700), 0);
    part(f, 0, dir);
    put(dir, "layout.json", "{}");
    assert_int_equal(vault_part_digest(f->vault, STEP, "trainer", 0, NULL, &got, NULL), STATUS_OK);
    got->layout_digest = mem_strdup(of_part);
    checkpoint.format = PB__CHECKPOINT__FORMAT__SHARDED;
    checkpoint.layout = mem_strdup(layout);
    checkpoint.layout_digest = mem_strdup("0123456789abcdef0123456789abcdef");
    checkpoint.parts = &got;
    checkpoint.n_parts = 1;
    f->manifest.len = 0;
    vault_manifest_build(&checkpoint, &f->manifest, f->digest);
    pb__checkpoint_part__free_unpacked(got, NULL);
    mem_free(checkpoint.layout);
    mem_free(checkpoint.layout_digest);
    assert_int_equal(vault_seal(f->vault, STEP, f->manifest.data, f->manifest.len, NULL),
                     STATUS_OK);
    return vault_verify(f->vault, STEP, f->digest, true, NULL);
}

static void sharded_manifest_names_its_layout(void **state)
{
    struct fixture *f = *state;
    const char *digest = "0123456789abcdef0123456789abcdef";

    assert_int_equal(sharded(f, "trainer-0/layout.json", digest), STATUS_OK);
    assert_non_null(strstr(text_get(&f->manifest), "\"format\": \"rondo-checkpoint-2\""));
    assert_non_null(strstr(text_get(&f->manifest), "\"layout\": \"trainer-0/layout.json\""));
    assert_int_equal(sharded(f, "trainer-0/other.json", digest), STATUS_DATA_LOSS);
    assert_int_equal(sharded(f, "../layout.json", digest), STATUS_DATA_LOSS);
    assert_int_equal(sharded(f, "trainer-0/layout.json", "00000000000000000000000000000000"),
                     STATUS_DATA_LOSS);
    assert_int_equal(sharded(f, "trainer-0/layout.json", NULL), STATUS_DATA_LOSS);
}

static void links_and_pipes_in_a_part_are_refused(void **state)
{
    struct fixture *f = *state;
    Pb__CheckpointPart *got = NULL;
    char dir[512], path[600];
    const char *targets[] = {"/etc/passwd", "/etc", "model.pt"};

    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        part(f, 0, dir);
        put(dir, "model.pt", "weights");
        snprintf(path, sizeof path, "%s/link", dir);
        assert_int_equal(symlink(targets[i], path), 0);
        assert_int_equal(vault_part_digest(f->vault, STEP, "trainer", 0, NULL, &got, NULL),
                         STATUS_INVALID);
    }
    part(f, 0, dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(vault_part_digest(f->vault, STEP, "trainer", 0, NULL, &got, NULL),
                     STATUS_INVALID);
    part(f, 0, dir);
    put(dir, "\xff\xfe", "name is not UTF-8");
    assert_int_equal(vault_part_digest(f->vault, STEP, "trainer", 0, NULL, &got, NULL),
                     STATUS_INVALID);
    assert_null(got);
}

static void a_part_that_is_a_link_is_not_followed(void **state)
{
    struct fixture *f = *state;
    Pb__CheckpointPart *got = NULL;
    char dir[512];

    part(f, 0, dir);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(symlink("/etc", dir), 0);
    assert_int_not_equal(vault_part_digest(f->vault, STEP, "trainer", 0, NULL, &got, NULL),
                         STATUS_OK);
    part(f, 0, dir); /* replaces the link, not what it points to */
    assert_int_equal(access("/etc/passwd", F_OK), 0);
}

static void trees_without_end_are_refused(void **state)
{
    struct fixture *f = *state;
    Pb__CheckpointPart *got = NULL;
    char dir[512], path[4000];

    part(f, 0, dir);
    size_t len = (size_t)snprintf(path, sizeof path, "%s", dir);
    for (int i = 0; i < 60; i++, len += 2) {
        memcpy(path + len, "/d", sizeof "/d");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_int_equal(vault_part_digest(f->vault, STEP, "trainer", 0, NULL, &got, NULL),
                     STATUS_INVALID);
    part(f, 0, dir); /* still removable */
}

static void names_cannot_leave_the_vault(void **state)
{
    struct fixture *f = *state;
    const char *paths[] = {"../x", "a/../../x", "/etc", "a//b", "a/", "", "."};
    const char *roles[] = {"../x", "a/b", ".hidden", ""};
    char dir[512];

    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        if (*paths[i])
            assert_int_equal(vault_part_create(f->vault, paths[i], "t", 0, -1, -1, dir, 512, NULL),
                             STATUS_INVALID);
        assert_int_equal(vault_delete(f->vault, paths[i], NULL), STATUS_INVALID);
    }
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(vault_part_create(f->vault, STEP, roles[i], 0, -1, -1, dir, 512, NULL),
                         STATUS_INVALID);
}

static void delete_removes_all_and_is_idempotent(void **state)
{
    struct fixture *f = *state;
    char path[512];

    checkpoint_with_two_parts(f, true);
    assert_int_equal(vault_delete(f->vault, STEP, NULL), STATUS_OK);
    snprintf(path, sizeof path, "%s/" STEP, f->vault);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(vault_delete(f->vault, STEP, NULL), STATUS_OK);
    assert_int_equal(vault_delete(f->vault, "job-9/step-1.1", NULL), STATUS_OK);
    assert_int_equal(vault_verify(f->vault, STEP, NULL, false, NULL), STATUS_NOT_FOUND);
    assert_int_not_equal(vault_delete("/nonexistent/vault", STEP, NULL), STATUS_OK);
}

static void seal_after_delete_is_not_found(void **state)
{
    struct fixture *f = *state;
    checkpoint_with_two_parts(f, true);
    assert_int_equal(vault_delete(f->vault, STEP, NULL), STATUS_OK);
    assert_int_equal(vault_seal(f->vault, STEP, f->manifest.data, f->manifest.len, NULL),
                     STATUS_NOT_FOUND);
}

#define T(test) cmocka_unit_test_setup_teardown(test, vault_setup, vault_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(paths_name_job_step_and_attempt),
        T(part_lists_its_files_in_order),
        T(part_starts_empty_after_a_torn_save),
        T(sealed_checkpoint_verifies_and_is_closed),
        T(unsealed_checkpoint_is_not_found),
        T(manifest_is_in_stable_order),
        T(seal_is_idempotent_and_never_replaces),
        T(of_two_sealers_one_wins),
        T(flipped_byte_is_found),
        T(cut_file_is_found_by_its_size_alone),
        T(changed_manifest_is_found),
        T(manifest_without_digests_fails_closed),
        T(sharded_manifest_names_its_layout),
        T(links_and_pipes_in_a_part_are_refused),
        T(a_part_that_is_a_link_is_not_followed),
        T(trees_without_end_are_refused),
        T(names_cannot_leave_the_vault),
        T(delete_removes_all_and_is_idempotent),
        T(seal_after_delete_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
