/* test_digest.c - digests against known values and against each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/digest.h"

static void crc32c_matches_the_published_check_value(void **state)
{
    (void)state;
    assert_int_equal(digest_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(digest_crc32c_by_table(0, "123456789", 9), 0xe3069283);
    assert_int_equal(digest_crc32c(0, "", 0), 0);
}

static void crc32c_of_pieces_equals_that_of_the_whole(void **state)
{
    unsigned char bytes[1000];
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 131 + 7);
    for (size_t cut = 0; cut < sizeof bytes; cut += 37) {
        uint32_t first = digest_crc32c(0, bytes, cut);
        assert_int_equal(digest_crc32c(first, bytes + cut, sizeof bytes - cut),
                         digest_crc32c_by_table(0, bytes, sizeof bytes));
    }
}

static unsigned char *some_bytes(size_t len)
{
    unsigned char *bytes = malloc(len + 1);
    uint64_t x = 88172645463325252U;
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes[i] = (unsigned char)x;
    }
    return bytes;
}

/* Every length about the places where one way of counting hands over to the next. */
static void crc32c_agrees_with_the_table_at_every_length_and_place(void **state)
{
    unsigned char *bytes = some_bytes(200000);
    const size_t lens[] = {0,    1,    7,     8,     9,     255,   256,   511,    512,   513,
                           767,  768,  1023,  1024,  3071,  3072,  3080,  4095,   4096,  4097,
                           8192, 9000, 24575, 24576, 24577, 65535, 65536, 100001, 199900};
    (void)state;
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++)
        for (size_t at = 0; at < 67; at += 11) {
            uint32_t want = digest_crc32c_by_table(0xdeadbeef, bytes + at, lens[i]);
            assert_int_equal(digest_crc32c(0xdeadbeef, bytes + at, lens[i]), want);
            assert_int_equal(digest_crc32c_by_chains(0xdeadbeef, bytes + at, lens[i]), want);
        }
    free(bytes);
}

static void a_copy_with_crc32c_copies_and_counts(void **state)
{
    enum { LEN = 70000 };
    unsigned char *bytes = some_bytes(LEN), *copy = malloc(LEN + 64);
    (void)state;
    assert_non_null(copy);
    for (size_t len = 0; len < LEN - 64; len = len * 3 / 2 + 1)
        for (size_t at = 0; at < 64; at += 9) {
            memset(copy, 0xa5, LEN + 64);
            assert_int_equal(digest_crc32c_copy(7, copy + at, bytes + 63 - at, len),
                             digest_crc32c_by_table(7, bytes + 63 - at, len));
            assert_memory_equal(copy + at, bytes + 63 - at, len);
            assert_int_equal(copy[at + len], 0xa5); /* and not a byte more */
            assert_true(at == 0 || copy[at - 1] == 0xa5);
        }
    free(copy);
    free(bytes);
}

static void crc32c_of_two_pieces_is_that_of_both(void **state)
{
    unsigned char *bytes = some_bytes(70000);
    (void)state;
    for (size_t cut = 0; cut <= 70000; cut += 4999)
        assert_int_equal(digest_crc32c_combine(digest_crc32c(0, bytes, cut),
                                               digest_crc32c(0, bytes + cut, 70000 - cut),
                                               70000 - cut),
                         digest_crc32c(0, bytes, 70000));
    assert_int_equal(digest_crc32c_combine(5, 0, 0), 5);
    free(bytes);
}

static void file_digests_match_known_values(void **state)
{
    char path[] = "/tmp/rondo-digest-XXXXXX";
    int fd = mkstemp(path);
    struct digest_file got;
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(digest_file(path, true, &got, NULL), STATUS_OK);
    assert_int_equal(got.bytes, 0);
    assert_string_equal(got.xxh3, "99aa06d3014798d86001c324468d497f"); /* XXH3-128 of nothing */
    assert_int_equal(write(fd, "123456789", 9), 9);
    assert_int_equal(digest_file(path, false, &got, NULL), STATUS_OK);
    assert_int_equal(got.bytes, 9);
    assert_int_equal(got.crc32c, 0xe3069283);
    assert_int_equal(strlen(got.xxh3), 32);
    close(fd);
    unlink(path);
}

static void large_files_are_read_to_their_end(void **state)
{
    char path[] = "/tmp/rondo-digest-XXXXXX";
    int fd = mkstemp(path);
    const size_t len = ((size_t)5 << 20) + 13;
    unsigned char *bytes = malloc(len);
    struct digest_file got;
    (void)state;
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(i >> 3);
    assert_int_equal(write(fd, bytes, len), (ssize_t)len);
    assert_int_equal(digest_file(path, true, &got, NULL), STATUS_OK);
    assert_int_equal(got.bytes, len);
    assert_int_equal(got.crc32c, digest_crc32c_by_table(0, bytes, len));
    free(bytes);
    close(fd);
    unlink(path);
}

static void links_directories_and_pipes_are_refused(void **state)
{
    char dir[] = "/tmp/rondo-digest-XXXXXX", path[64];
    struct digest_file got = {.bytes = 42};
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(digest_file(dir, false, &got, NULL), STATUS_INVALID);
    snprintf(path, sizeof path, "%s/none", dir);
    assert_int_equal(digest_file(path, false, &got, NULL), STATUS_NOT_FOUND);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(digest_file(path, false, &got, NULL), STATUS_INVALID);
    unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_not_equal(digest_file(path, false, &got, NULL), STATUS_OK);
    unlink(path);
    assert_int_equal(got.bytes, 42); /* outputs untouched */
    rmdir(dir);
}

static void sha256_matches_the_published_value(void **state)
{
    char hex[65];
    (void)state;
    digest_sha256("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_matches_the_published_check_value),
        cmocka_unit_test(crc32c_agrees_with_the_table_at_every_length_and_place),
        cmocka_unit_test(a_copy_with_crc32c_copies_and_counts),
        cmocka_unit_test(crc32c_of_two_pieces_is_that_of_both),
        cmocka_unit_test(crc32c_of_pieces_equals_that_of_the_whole),
        cmocka_unit_test(file_digests_match_known_values),
        cmocka_unit_test(large_files_are_read_to_their_end),
        cmocka_unit_test(links_directories_and_pipes_are_refused),
        cmocka_unit_test(sha256_matches_the_published_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
