/* test_look.c - what the daemon asks of a node's vaults and slots, and has repaired there. */
#include "checkpoint/vault.h"
#include "tests/unit/agent/agent_rig.h"
#include <sys/stat.h>
#include <unistd.h>

#define V(x) PB__VAULT_ASK__VERB__##x

static bool vault_came(struct rig *rig)
{
    return rig->vault != NULL;
}

static bool is_up(struct rig *rig)
{
    return rig->greeted;
}

static const Pb__VaultChunk *ask(struct rig *rig, Pb__VaultAsk__Verb verb, const char *vault,
                                 const char *path)
{
    static uint64_t number;
    Pb__BulkDown down = PB__BULK_DOWN__INIT;
    Pb__VaultAsk out = PB__VAULT_ASK__INIT;
    out.has_ask = out.has_verb = true;
    out.ask = verb == V(MORE) ? number : ++number;
    out.verb = verb;
    out.vault = (char *)(uintptr_t)vault;
    out.path = (char *)(uintptr_t)path;
    down.vault = &out;
    if (rig->vault)
        pb__vault_chunk__free_unpacked(rig->vault, NULL);
    rig->vault = NULL;
    rig_until(rig, is_up);
    rig->events->bulk(rig->events_arg, &down);
    rig_until(rig, vault_came);
    assert_int_equal(rig->vault->ask, number);
    return rig->vault;
}

static void make(struct rig *rig, const char *path)
{
    const char *vault = unit_path(rig->dir, "vault");
    char dir[512];
    assert_int_equal(vault_part_create(vault, path, "w", 0, -1, -1, dir, sizeof(dir), NULL),
                     STATUS_OK);
    unit_write(unit_path(dir, "model"), "half");
}

static bool is_there(struct rig *rig, const char *path)
{
    struct stat st;
    return stat(unit_path(unit_path(rig->dir, "vault"), path), &st) == 0;
}

static void lists_a_vault_and_says_what_it_has_not(void **state)
{
    struct rig *rig = *state;
    make(rig, "job-7/step-5.1");
    make(rig, "job-8/step-5.1");
    const Pb__VaultChunk *chunk = ask(rig, V(LIST), "main", NULL);
    assert_null(chunk->error);
    assert_true(chunk->end);
    assert_int_equal(chunk->n_found, 2);
    assert_string_equal(chunk->found[0]->path, "job-7/step-5.1");
    assert_int_equal(chunk->found[0]->kind, PB__VAULT_FOUND__KIND__UNSEALED);
    chunk = ask(rig, V(LIST), "other", NULL);
    assert_non_null(strstr(chunk->error, "no vault"));
    assert_true(chunk->end);
}

static void more_pieces_than_one_message(void **state)
{
    struct rig *rig = *state;
    size_t count = 0;
    char path[64];
    for (int i = 0; i < 600; i++) {
        snprintf(path, sizeof(path), "vault/job-7/step-%d.1", i);
        assert_int_equal(file_make_dirs(unit_path(rig->dir, path), 0755, NULL), STATUS_OK);
    }
    const Pb__VaultChunk *chunk = ask(rig, V(LIST), "main", NULL);
    assert_false(chunk->end);
    count = chunk->n_found;
    chunk = ask(rig, V(MORE), "main", NULL);
    assert_true(chunk->end);
    assert_int_equal(count + chunk->n_found, 600);
}

static void removes_and_sets_aside(void **state)
{
    struct rig *rig = *state;
    make(rig, "job-7/step-5.1");
    make(rig, "job-7/step-6.1");
    assert_null(ask(rig, V(REMOVE), "main", "job-7/step-5.1")->error);
    assert_false(is_there(rig, "job-7/step-5.1"));
    assert_null(ask(rig, V(SET_ASIDE), "main", "job-7/step-6.1")->error);
    assert_false(is_there(rig, "job-7/step-6.1"));
    assert_true(is_there(rig, "lost+found/job-7.step-6.1/w-0/model"));
    assert_non_null(ask(rig, V(REMOVE), "main", "../x")->error);
    assert_non_null(ask(rig, V(REMOVE), "main", "")->error);
}

static void what_a_worker_may_write_to_stays(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "sleep", NULL); /* attempt 1 of job 7 */
    rig_until(rig, rig_is_running);
    make(rig, "job-7/step-5.1");
    make(rig, "job-7/step-5.11");
    assert_non_null(strstr(ask(rig, V(REMOVE), "main", "job-7/step-5.1")->error, "still here"));
    assert_true(is_there(rig, "job-7/step-5.1/w-0/model"));
    assert_null(ask(rig, V(REMOVE), "main", "job-7/step-5.11")->error);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return (int)pause();
    }
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(lists_a_vault_and_says_what_it_has_not),
        T(more_pieces_than_one_message),
        T(removes_and_sets_aside),
        T(what_a_worker_may_write_to_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
