/* main_print_docs.c - writes the printed pages of docs/, or says which ones are stale.
 *
 * rondo-print-docs ROOT           writes them below ROOT/docs
 * rondo-print-docs --check ROOT   compares; exit 1 names those that differ */
#include "base/file.h"
#include "base/mem.h"
#include "tests/docs/page.h"
#include <stdio.h>
#include <string.h>

#define SOURCE_BYTES_MAX (1u << 20)

static const struct {
    const char *path;
    void (*print)(const struct page_sources *sources, struct text *out);
} pages[] = {
    {"docs/states.md", page_states},
    {"docs/reference/rondod.md", page_rondod},
    {"docs/reference/rondo-agent.md", page_rondo_agent},
    {"docs/reference/rondoctl.md", page_rondoctl},
    {"docs/reference/job-file.md", page_job_file},
    {"docs/reference/api.md", page_api},
    {"docs/reference/rondo-bench.md", page_bench},
};

static bool complain(const char *what, const char *why)
{
    fprintf(stderr, "rondo-print-docs: %s: %s\n", what, why);
    return false;
}

static char *read_source(const char *root, const char *name)
{
    SCOPED_TEXT char *path = mem_printf("%s/proto/rondo/v1/%s.proto", root, name);
    struct error err;
    char *bytes = NULL;
    size_t len;
    if (file_read(path, SOURCE_BYTES_MAX, &bytes, &len, &err) != STATUS_OK)
        complain(path, err.text);
    return bytes;
}

static bool compare(const char *path, const char *name, const struct text *page)
{
    SCOPED_TEXT char *bytes = NULL;
    size_t len;
    if (file_read(path, SOURCE_BYTES_MAX, &bytes, &len, NULL) != STATUS_OK)
        return complain(name, "missing; run scripts/docs.sh");
    if (strcmp(bytes, text_get(page)) != 0)
        return complain(name, "stale; run scripts/docs.sh");
    return true;
}

static bool settle(const char *root, size_t i, bool check, const struct page_sources *sources)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", root, pages[i].path);
    struct error err;
    struct text page;
    bool ok;
    text_init(&page, 0);
    pages[i].print(sources, &page);
    if (check)
        ok = compare(path, pages[i].path, &page);
    else
        ok = file_write_atomic(path, text_get(&page), page.len, 0644, &err) == STATUS_OK ||
             complain(path, err.text);
    text_fini(&page);
    return ok;
}

int main(int argc, char **argv)
{
    bool check = argc > 1 && strcmp(argv[1], "--check") == 0, ok = true;
    const char *root = argc == 2 + check ? argv[1 + check] : NULL;
    if (!root) {
        fprintf(stderr, "usage: rondo-print-docs [--check] ROOT\n");
        return 2;
    }
    struct page_sources sources = {read_source(root, "job"), read_source(root, "control"),
                                   read_source(root, "agent")};
    if (!sources.job || !sources.control || !sources.agent)
        return 1;
    for (size_t i = 0; i < COUNT_OF(pages); i++)
        ok = settle(root, i, check, &sources) && ok;
    mem_free(sources.job);
    mem_free(sources.control);
    mem_free(sources.agent);
    return ok ? 0 : 1;
}
