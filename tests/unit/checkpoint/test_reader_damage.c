/* test_reader_damage.c - any changed bit of a sealed checkpoint is found, and named; files that are
 * cut, grown, exchanged or gone too. */
#include "tests/unit/checkpoint/sharded.h"

static const char two[] =
    "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,20,40],[0,16]],\"ranks\":[[0],[1]]}],"
    "\"tensors\":[[\"w\",\"F32\",[40,16],0],[\"b\",\"U8\",[40,16],0]],\"aliases\":{}}";
#define SHARD_0 "trainer-0/shard-00001-model-00001-of-00001.safetensors"
#define SHARD_1 "trainer-1/shard-00002-model-00001-of-00001.safetensors"

struct damage {
    char *dir;
    struct sharded *sharded;
    char digest[65];
};

static char *path_of(const struct damage *damage, const char *name)
{
    return mem_printf("%s/%s", damage->dir, name);
}

static struct damage damage_make(const char *dir, const char *layout)
{
    struct damage damage = {.dir = mem_strdup(dir), .sharded = sharded_create(layout)};
    SCOPED_TEXT char *path = path_of(&damage, "manifest.json");
    SCOPED_TEXT char *bytes = NULL;
    size_t len;

    sharded_save(damage.sharded, dir);
    assert_int_equal(file_read(path, 1 << 20, &bytes, &len, NULL), STATUS_OK);
    digest_sha256(bytes, len, damage.digest);
    return damage;
}

static void damage_fini(struct damage *damage)
{
    sharded_destroy(damage->sharded);
    mem_free(damage->dir);
}

static bool is_manifest(void *arg, const void *bytes, size_t len)
{
    char digest[65];

    digest_sha256(bytes, len, digest);
    return strcmp(digest, arg) == 0;
}

/* Opens, reads the states, loads all: the first failure. named: what the reader calls damaged. */
static enum status load_all(struct damage *damage, char named[400], struct error *err)
{
    const struct reader_options options = {
        .manifest_ok = is_manifest, .arg = damage->digest, .patience_ms = 1};
    SCOPED(reader_close) struct reader *reader = NULL;
    enum status st = reader_open(damage->dir, "", &options, &reader, err);

    named[0] = '\0';
    for (uint32_t rank = 0; st == STATUS_OK && rank < 2; rank++) {
        SCOPED_TEXT char *bytes = NULL;
        size_t len;
        st = reader_state(reader, rank, 1 << 20, &bytes, &len, err);
        if (st == STATUS_OK)
            st = sharded_load_rank(damage->sharded, reader, damage->sharded->declared, rank, NULL,
                                   err);
    }
    if (reader)
        (void)snprintf(named, 400, "%s", reader_damaged(reader));
    return st;
}

static void assert_named(struct damage *damage, const char *name, const char *block)
{
    char named[400];
    struct error err = {0};
    enum status st = load_all(damage, named, &err);

    if (st != STATUS_DATA_LOSS ||
        !strstr(err.text, strrchr(name, '/') ? strrchr(name, '/') + 1 : name))
        fail_msg("%s: %s, \"%s\"", name, status_name(st), err.text);
    if (block && !strstr(name, "layout.json") && /* of that there is no reader to ask */
        (!strstr(named, name) || !strstr(named, block)))
        fail_msg("%s%s: named \"%s\"", name, block, named);
}

static void flip(const char *path, off_t at, unsigned char bits)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= bits;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* K16 M59: every byte of every file, each with another bit; of the manifest and tables every bit.
 */
static void every_flipped_bit_is_found_and_named(void **state)
{
    static const char *const names[] = {"manifest.json",
                                        "trainer-0/layout.json",
                                        "trainer-0/state.json",
                                        "trainer-1/state.json",
                                        "trainer-1/blocks.crc32c",
                                        SHARD_0,
                                        SHARD_1};
    struct damage damage = damage_make(*state, two);

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        SCOPED_TEXT char *path = path_of(&damage, names[i]);
        bool shard = strstr(names[i], "shard-");
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        /* of the padding behind a header every 7th byte is enough */
        for (off_t at = 0; at < st.st_size; at += shard && at > 700 && at < 4096 ? 7 : 1) {
            unsigned char bit = (unsigned char)(1U << (at % 8));
            flip(path, at, bit);
            assert_named(&damage, names[i], i == 0 ? NULL : shard ? ", block 0" : "");
            flip(path, at, bit);
        }
    }
    char named[400];
    assert_int_equal(load_all(&damage, named, NULL), STATUS_OK); /* and whole again */
    assert_string_equal(named, "");
    damage_fini(&damage);
}

static const char wide[] =
    "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,500,1000],[0,200]],\"ranks\":[[0],[1]]}],"
    "\"tensors\":[[\"w\",\"F32\",[1000,200],0]],\"aliases\":{}}";

static void the_damaged_block_is_the_one_that_is_named(void **state)
{
    struct damage damage = damage_make(*state, wide);
    SCOPED_TEXT char *path = path_of(&damage, SHARD_1);

    for (off_t block = 0; block < 6; block++) {
        SCOPED_TEXT char *named = mem_printf(", block %d", (int)block);
        flip(path, block * 65536 + 5000, 16);
        assert_named(&damage, SHARD_1, named);
        flip(path, block * 65536 + 5000, 16);
    }
    damage_fini(&damage);
}

/* K14: short and long files alike. */
static void files_of_another_size_are_refused(void **state)
{
    static const char *const names[] = {"trainer-0/layout.json", "trainer-0/state.json",
                                        "trainer-1/blocks.crc32c", SHARD_0};
    struct damage damage = damage_make(*state, wide);

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        SCOPED_TEXT char *path = path_of(&damage, names[i]);
        SCOPED_TEXT char *bytes = NULL;
        size_t len;
        assert_int_equal(file_read(path, 1 << 20, &bytes, &len, NULL), STATUS_OK);
        assert_int_equal(truncate(path, (off_t)len - 1), 0);
        assert_named(&damage, names[i], "");
        assert_int_equal(truncate(path, (off_t)len + 1), 0);
        assert_named(&damage, names[i], "");
        assert_int_equal(truncate(path, 0), 0);
        assert_named(&damage, names[i], "");
        assert_int_equal(unlink(path), 0);
        assert_named(&damage, names[i], "");
        assert_int_equal(symlink("/dev/zero", path), 0); /* K19: no link is followed */
        char named[400];
        assert_int_not_equal(load_all(&damage, named, NULL), STATUS_OK);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(file_write_atomic(path, bytes, len, 0644, NULL), STATUS_OK);
    }
    damage_fini(&damage);
}

static void exchanged_files_are_found(void **state)
{
    struct damage damage = damage_make(*state, wide);
    SCOPED_TEXT char *a = path_of(&damage, SHARD_0);
    SCOPED_TEXT char *b = path_of(&damage, SHARD_1);
    SCOPED_TEXT char *c = path_of(&damage, "c");

    assert_int_equal(rename(a, c), 0);
    assert_int_equal(rename(b, a), 0);
    assert_int_equal(rename(c, b), 0);
    assert_named(&damage, SHARD_0, ", block 0");
    damage_fini(&damage);
}

/* K5 K13: what else lies there is neither read nor in the way. */
static void stray_files_are_not_looked_at(void **state)
{
    struct damage damage = damage_make(*state, wide);
    SCOPED_TEXT char *stray =
        path_of(&damage, "trainer-0/shard-00001-model-00002-of-00002.safetensors");
    SCOPED_TEXT char *temp = path_of(&damage, ".manifest.0123");
    char named[400];

    assert_int_equal(file_write_atomic(stray, "garbage", 7, 0644, NULL), STATUS_OK);
    assert_int_equal(file_write_atomic(temp, "{", 1, 0600, NULL), STATUS_OK);
    assert_int_equal(load_all(&damage, named, NULL), STATUS_OK);
    damage_fini(&damage);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(every_flipped_bit_is_found_and_named), T(the_damaged_block_is_the_one_that_is_named),
        T(files_of_another_size_are_refused),    T(exchanged_files_are_found),
        T(stray_files_are_not_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
