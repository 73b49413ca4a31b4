/* test_pack.c - archives that depend on content alone, and what is refused. */
#include "ctl/pack.h"
#include "tests/unit/unit.h"
#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

static enum status pack(const char *dir, struct pack *out, char *why)
{
    struct error err = {0};
    enum status st = pack_directory(dir, out, &err);
    if (why)
        snprintf(why, 240, "%s", err.text);
    return st;
}

/* "name type mode" of each entry. */
static void list(const struct pack *pack, struct text *out)
{
    struct archive *in = archive_read_new();
    struct archive_entry *entry;
    archive_read_support_format_tar(in);
    assert_int_equal(archive_read_open_memory(in, pack->tar.data, pack->tar.len), ARCHIVE_OK);
    while (archive_read_next_header(in, &entry) == ARCHIVE_OK)
        text_addf(out, "%s %c %o %ld\n", archive_entry_pathname(entry),
                  archive_entry_filetype(entry) == AE_IFDIR   ? 'd'
                  : archive_entry_filetype(entry) == AE_IFLNK ? 'l'
                                                              : 'f',
                  archive_entry_perm(entry),
                  (long)(archive_entry_mtime(entry) + archive_entry_uid(entry)));
    archive_read_free(in);
}

static void make_tree(const char *dir)
{
    mkdir(unit_path(dir, "sub"), 0700);
    mkdir(unit_path(dir, ".git"), 0700);
    mkdir(unit_path(dir, "data"), 0700);
    unit_write(unit_path(dir, "train.py"), "print(1)\n");
    unit_write(unit_path(dir, "run.sh"), "#!/bin/sh\n");
    chmod(unit_path(dir, "run.sh"), 0700);
    unit_write(unit_path(dir, "sub/gr\u00f6\u00dfe.txt"), "x");
    unit_write(unit_path(dir, ".git/config"), "x");
    unit_write(unit_path(dir, "data/big.bin"), "x");
    unit_write(unit_path(dir, "a.pyc"), "x");
    unit_write(unit_path(dir, ".rondoignore"), "# comment\n/data/\n");
    assert_int_equal(symlink("../train.py", unit_path(dir, "sub/link")), 0);
}

static void an_archive_holds_what_is_not_ignored(void **state)
{
    struct pack out;
    struct text names;
    make_tree(*state);
    assert_int_equal(pack(*state, &out, NULL), STATUS_OK);
    text_init(&names, 0);
    list(&out, &names);
    assert_string_equal(text_get(&names), "run.sh f 755 0\n"
                                          "sub/ d 755 0\n"
                                          "sub/gr\u00f6\u00dfe.txt f 644 0\n"
                                          "sub/link l 777 0\n"
                                          "train.py f 644 0\n");
    assert_int_equal(out.entries, 5);
    text_fini(&names);
    pack_fini(&out);
}

static void the_digest_depends_on_content_alone(void **state)
{
    struct pack one, two, three;
    struct utimbuf old = {1000, 1000};
    make_tree(*state);
    assert_int_equal(pack(*state, &one, NULL), STATUS_OK);
    utime(unit_path(*state, "train.py"), &old);
    chmod(unit_path(*state, "train.py"), 0600);
    unit_write(unit_path(*state, "data/more"), "y");
    assert_int_equal(pack(*state, &two, NULL), STATUS_OK);
    assert_string_equal(one.digest, two.digest);
    assert_int_equal(strlen(one.digest), 64);
    unit_write(unit_path(*state, "train.py"), "print(2)\n");
    assert_int_equal(pack(*state, &three, NULL), STATUS_OK);
    assert_string_not_equal(one.digest, three.digest);
    pack_fini(&one);
    pack_fini(&two);
    pack_fini(&three);
}

static void what_cannot_travel_is_refused_by_name(void **state)
{
    struct pack out;
    char why[240];
    unit_write(unit_path(*state, "a"), "x");
    assert_int_equal(symlink("../../etc/passwd", unit_path(*state, "out")), 0);
    assert_int_equal(pack(*state, &out, why), STATUS_INVALID);
    assert_non_null(strstr(why, "link out points outside the code, to ../../etc/passwd"));
    pack_fini(&out);
    unlink(unit_path(*state, "out"));
    assert_int_equal(mkfifo(unit_path(*state, "pipe"), 0600), 0);
    assert_int_equal(pack(*state, &out, why), STATUS_INVALID);
    assert_non_null(strstr(why, "pipe is a device, pipe or socket"));
    pack_fini(&out);
    assert_int_equal(pack(unit_path(*state, "absent"), &out, why), STATUS_NOT_FOUND);
    pack_fini(&out);
    mkdir(unit_path(*state, "empty"), 0700);
    assert_int_equal(pack(unit_path(*state, "empty"), &out, why), STATUS_INVALID);
    pack_fini(&out);
}

static void size_is_bounded(void **state)
{
    struct pack out;
    char why[240];
    unit_write(unit_path(*state, "big"), "");
    assert_int_equal(truncate(unit_path(*state, "big"), PACK_BYTES_MAX - 1000), 0);
    unit_write(unit_path(*state, "more"), "x");
    assert_int_equal(truncate(unit_path(*state, "more"), 4000), 0);
    assert_int_equal(pack(*state, &out, why), STATUS_EXHAUSTED);
    assert_non_null(strstr(why, "at most 64 MiB and 20000 entries"));
    pack_fini(&out);
}

static void links_are_followed_on_paper(void **state)
{
    (void)state;
    assert_true(pack_link_is_inside("a/b/link", "../../c"));
    assert_false(pack_link_is_inside("a/b/link", "../../../c"));
    assert_false(pack_link_is_inside("link", ".."));
    assert_true(pack_link_is_inside("link", "x/.."));
    assert_false(pack_link_is_inside("link", "x/../.."));
    assert_false(pack_link_is_inside("link", "/etc"));
    assert_false(pack_link_is_inside("link", ""));
    assert_true(pack_link_is_inside("link", "./x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_archive_holds_what_is_not_ignored, unit_dir_setup,
                                        unit_dir_teardown),
        cmocka_unit_test_setup_teardown(the_digest_depends_on_content_alone, unit_dir_setup,
                                        unit_dir_teardown),
        cmocka_unit_test_setup_teardown(what_cannot_travel_is_refused_by_name, unit_dir_setup,
                                        unit_dir_teardown),
        cmocka_unit_test_setup_teardown(size_is_bounded, unit_dir_setup, unit_dir_teardown),
        cmocka_unit_test(links_are_followed_on_paper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
