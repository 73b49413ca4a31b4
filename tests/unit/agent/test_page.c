/* test_page.c - a worker cuts its page file short; who reads it lives on. */
#include "agent/files.h"
#include "agent/page_guard.h"
#include "base/loop.h"
#include "tests/unit/unit.h"
#include "worker/page.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void cut_page_reads_as_empty(void **state)
{
    const char *dir = *state;
    struct files_batch *batch = files_batch_create();
    struct loop *loop = loop_uv_create();
    struct files *files = files_uv_create(loop, 1);
    page_guard_install();
    files_step_add(batch, FILES_PAGE, unit_path(dir, "page"))->len = PAGE_BYTES;
    assert_int_equal(files_disk_run(batch, NULL), STATUS_OK);
    struct page *page = batch->steps[0].page;
    assert_true(page->magic == PAGE_MAGIC);
    assert_int_equal(truncate(unit_path(dir, "page"), 0), 0);
    assert_int_equal(atomic_load(&page->reports), 0);
    assert_int_equal(page->magic, 0);
    files->ops->unmap(files, page);
    files->ops->destroy(files);
    loop_uv_destroy(loop);
    files_batch_destroy(batch);
    (void)signal(SIGBUS, SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        cut_page_reads_as_empty, unit_dir_setup, unit_dir_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
