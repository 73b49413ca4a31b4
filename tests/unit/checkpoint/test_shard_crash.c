/* test_shard_crash.c - a save that ends at any system call, by a death or by an error, leaves the
 * checkpoint before it, or itself whole; and the next try succeeds.
 *
 * K3 K4 K9 K38 M47: the calls that change a file system are counted from the first directory to the
 * last sync. */
#include "tests/unit/checkpoint/io_faults.h"
#include "tests/unit/checkpoint/sharded.h"

#include <limits.h>
#include <sys/wait.h>

#include "checkpoint/vault.h"
#include "checkpoint/vault_part.h"

#define OLDER "job-7/step-100.1"
#define NEWER "job-7/step-120.1"

static const char two[] =
    "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,300,600],[0,200]],\"ranks\":[[0],[1]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,33]],\"ranks\":[[0,1]]}],"
    "\"tensors\":[[\"w\",\"F32\",[600,200],0],[\"b\",\"U8\",[33],1]],\"aliases\":{}}";

/* As the agents do: parts, and when all are there the manifest. */
static enum status save(const struct sharded *sharded, const char *vault, const char *path)
{
    const struct io_pool_options options = {.threads = 3, .buffer_bytes = 128 << 10};
    SCOPED(io_pool_destroy) struct io_pool *pool = NULL;
    struct text manifest;
    enum status st = io_pool_create(&options, &pool, NULL);

    sharded_manifest_begin(sharded, &manifest);
    for (uint32_t rank = 0; st == STATUS_OK && rank < 2; rank++) {
        struct vault_part part;
        struct error err;
        st = vault_part_begin(vault, path, "trainer", rank, &part, &err);
        if (st != STATUS_OK)
            break;
        st = sharded_save_part(sharded, part.dir, rank, pool, &manifest, &err);
        if (st == STATUS_OK)
            st = vault_part_publish(&part, -1, -1, &err);
        vault_part_end(&part);
    }
    text_add(&manifest, "]}");
    if (st == STATUS_OK)
        st = vault_seal(vault, path, text_get(&manifest), manifest.len, NULL);
    text_fini(&manifest);
    return st;
}

/* NOT_FOUND, or every bit is there. */
static enum status look(const struct sharded *sharded, const char *vault, const char *path)
{
    const struct reader_options options = {.patience_ms = 1};

    for (uint32_t rank = 0; rank < 2; rank++) {
        SCOPED(reader_close) struct reader *reader = NULL;
        struct error err;
        enum status st = reader_open(vault, path, &options, &reader, &err);
        if (st == STATUS_NOT_FOUND)
            return st;
        if (st != STATUS_OK ||
            sharded_load_rank(sharded, reader, sharded->declared, rank, NULL, &err) != STATUS_OK)
            fail_msg("%s: %s", path, err.text);
    }
    return STATUS_OK;
}

struct crash {
    struct sharded *older, *newer;
    const char *vault;
};

static struct crash crash_make(const char *vault)
{
    struct crash crash = {sharded_create(two), sharded_create(two), vault};
    size_t len = (size_t)layout_tensor_bytes(layout_table_at(crash.newer->declared, 0));

    for (size_t i = 0; i < len; i++)
        crash.newer->full[0][i] ^= 0x5a; /* a mixture would show */
    assert_int_equal(save(crash.older, vault, OLDER), STATUS_OK);
    return crash;
}

static void crash_fini(struct crash *crash)
{
    sharded_destroy(crash->older);
    sharded_destroy(crash->newer);
}

/* Whatever is there is whole, and saving again ends well. */
static void settle(const struct crash *crash)
{
    enum status st;

    io_faults_reset();
    assert_int_equal(look(crash->older, crash->vault, OLDER), STATUS_OK);
    (void)look(crash->newer, crash->vault, NEWER);
    st = save(crash->newer, crash->vault, NEWER);
    assert_true(st == STATUS_OK || st == STATUS_EXISTS);
    assert_int_equal(look(crash->newer, crash->vault, NEWER), STATUS_OK);
    assert_int_equal(vault_delete(crash->vault, NEWER, NULL), STATUS_OK);
}

static void a_death_at_any_call_leaves_old_or_new(void **state)
{
    struct crash crash = crash_make(*state);
    bool ended = false;

    for (long call = 1; !ended; call++) {
        pid_t child = fork();
        int how;
        assert_true(child >= 0);
        if (child == 0) {
            io_faults_reset();
            atomic_store(&io_faults.crash_call, call);
            _exit(save(crash.newer, crash.vault, NEWER) == STATUS_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &how, 0), child);
        ended = WIFEXITED(how);
        assert_true(ended ? WEXITSTATUS(how) == 0 : WTERMSIG(how) == SIGKILL);
        assert_true(!ended || call > 60);
        settle(&crash);
    }
    crash_fini(&crash);
}

static void an_error_at_any_call_leaves_old_or_new(void **state)
{
    static const int errnums[] = {ENOSPC, EDQUOT, EIO};
    struct crash crash = crash_make(*state);

    for (size_t i = 0; i < COUNT_OF(errnums); i++) {
        long call = 0, calls;
        do {
            io_faults_set(++call, 1, errnums[i]);
            (void)save(crash.newer, crash.vault, NEWER); /* some errors are survived */
            calls = atomic_load(&io_faults.calls);
            settle(&crash);
        } while (calls >= call);
        assert_true(call > 60);
    }
    crash_fini(&crash);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(a_death_at_any_call_leaves_old_or_new),
        T(an_error_at_any_call_leaves_old_or_new),
    };
    io_faults_reset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
