/* unit.h - what every unit test includes: CMocka with what it needs, and a private directory.
 *
 * unit_dir_create makes a fresh directory; unit_dir_destroy removes it with all below and frees the
 * path. Use them as setup and teardown, or at both ends of a test. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* CMocka needs those four first. */
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A test program that is its own worker ends after that time, also when the test was killed. */
#define UNIT_WORKER_S 600

/* Processes under it have a thread that they did not ask for. */
static inline bool unit_has_thread_sanitizer(void)
{
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return true;
#endif
#endif
#ifdef __SANITIZE_THREAD__
    return true;
#else
    return false;
#endif
}

static inline char *unit_dir_create(void)
{
    const char *base = getenv("TMPDIR");
    char *path = mem_printf("%s/unit-XXXXXX", base && *base ? base : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void unit_dir_destroy(char *path)
{
    struct error err;
    if (file_remove_tree(path, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    mem_free(path);
}

/* As CMocka's setup and teardown: *state is the path. */
static inline int unit_dir_setup(void **state)
{
    *state = unit_dir_create();
    return 0;
}

static inline int unit_dir_teardown(void **state)
{
    unit_dir_destroy(*state);
    return 0;
}

/* The path of name in dir, in a buffer that lives until the fourth next call. */
static inline const char *unit_path(const char *dir, const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char made[512]; /* dir may be one of ours */
    snprintf(made, sizeof(made), "%s/%s", dir, name);
    return memcpy(paths[next++ % 4], made, sizeof(made));
}

static inline void unit_write(const char *path, const char *text)
{
    struct error err;
    if (file_write_atomic(path, text, strlen(text), 0600, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}
