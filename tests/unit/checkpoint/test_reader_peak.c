/* test_reader_peak.c - what loading needs of memory beyond the tensors themselves: at most 256 MiB,
 * whatever there is of them and however they lie. */
#include "tests/unit/checkpoint/sparse.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define MIB       ((uint64_t)1 << 20)
#define STATE_MIB 768u
#define EXTRA_MIB 256u
#define ROOM_MIB                                                                                   \
    (2 * STATE_MIB) /* of memory that is free: with less there is nothing to measure               \
                     */

/* A line of /proc, in MiB; 0: there is none. */
static uint64_t line_mib(const char *file, const char *name)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *lines = fopen(file, "re");
    size_t len = strlen(name);

    while (lines && !kib && fgets(line, sizeof line, lines))
        if (strncmp(line, name, len) == 0)
            (void)sscanf(line + len, "%llu", &kib);
    if (lines)
        (void)fclose(lines);
    return kib / 1024;
}

/* --- layouts: count square tensors of F32, over ranks by rows or by columns */

static struct layout_table *squares(uint32_t count, uint32_t side, uint32_t world, bool columns)
{
    struct text json, cuts, ranks;
    struct layout_table *table;

    text_init(&json, 0);
    text_init(&cuts, 0);
    text_init(&ranks, 0);
    for (uint32_t i = 0; i <= world; i++)
        text_addf(&cuts, "%s%" PRIu32, i ? "," : "", side / world * i);
    for (uint32_t i = 0; i < world; i++)
        text_addf(&ranks, "%s[%" PRIu32 "]", i ? "," : "", i);
    text_addf(&json, "{\"format\":\"rondo-layout-1\",\"world\":%" PRIu32 ",\"layouts\":[", world);
    SCOPED_TEXT char *all = mem_printf("0,%" PRIu32, side);
    text_addf(&json, "{\"kind\":\"grid\",\"cuts\":[[%s],[%s]],\"ranks\":[%s]}],\"tensors\":[",
              columns ? all : text_get(&cuts), columns ? text_get(&cuts) : all, text_get(&ranks));
    for (uint32_t i = 0; i < count; i++)
        text_addf(&json, "%s[\"t%06" PRIu32 "\",\"F32\",[%" PRIu32 ",%" PRIu32 "],0]", i ? "," : "",
                  i, side, side);
    text_add(&json, "],\"aliases\":{}}");
    table = sharded_layout(text_get(&json));
    text_fini(&json);
    text_fini(&cuts);
    text_fini(&ranks);
    return table;
}

/* --- one load, in a process of its own */

struct load {
    const char *dir;
    const struct layout_table *target;
    uint32_t rank;
};
struct outcome { /* shared with the child */
    enum status st;
    char text[240];
    uint64_t bytes, before_mib, most_mib; /* of the tensors; VmRSS before, VmHWM after */
};

/* The pieces' memory lies in one range that nothing has touched. */
static void **places(const struct load *load, uint64_t *bytes)
{
    const size_t tensors = layout_table_count(load->target);
    void **pieces = mem_array(tensors + 1, sizeof(void *));
    struct layout_box box;

    *bytes = 0;
    for (size_t i = 0; i < tensors; i++) {
        if (layout_table_pieces(load->target, i, load->rank, &box, 1) != 1)
            abort();
        *bytes += layout_box_bytes(&box, layout_table_at(load->target, i));
    }
    char *memory = mmap(NULL, *bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    (void)madvise(memory, *bytes, MADV_HUGEPAGE); /* it is filled sooner */
    for (size_t i = 0; i < tensors; i++)
        pieces[i] = memory + *bytes / tensors * i;
    return pieces;
}

static void load_in_child(const struct load *load, struct outcome *out)
{
    SCOPED(reader_close) struct reader *reader = NULL;
    SCOPED(mem_free) void *pieces = places(load, &out->bytes);
    struct reader_stats stats = {0};
    struct error err = {0};

    out->before_mib = line_mib("/proc/self/status", "VmRSS:");
    out->st = reader_open(load->dir, "", NULL, &reader, &err);
    if (out->st == STATUS_OK)
        out->st = reader_load(reader, load->target, load->rank, pieces, &stats, &err);
    out->most_mib = line_mib("/proc/self/status", "VmHWM:");
    memcpy(out->text, err.text, sizeof out->text);
}

static void expect_small(const struct load *load)
{
    struct outcome *out =
        mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;

    assert_ptr_not_equal(out, MAP_FAILED);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        load_in_child(load, out);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    if (out->st != STATUS_OK)
        fail_msg("%s", out->text);
    assert_true(out->most_mib >= out->bytes / MIB); /* else it measures nothing */
    if (out->most_mib > out->before_mib + out->bytes / MIB + EXTRA_MIB)
        fail_msg("%" PRIu64 " MiB at most, %" PRIu64 " before, for tensors of %" PRIu64 " MiB",
                 out->most_mib, out->before_mib, out->bytes / MIB);
    (void)munmap(out, sizeof *out);
}

static void check(void **state, uint32_t count, uint32_t side)
{
    assert_int_equal((uint64_t)count * side * side * 4, STATE_MIB * MIB);
    /* The thread sanitizer keeps up to four bytes of its own for each one that is touched. */
    if (unit_has_thread_sanitizer() || line_mib("/proc/meminfo", "MemAvailable:") < ROOM_MIB)
        skip();
    SCOPED(layout_table_destroy) struct layout_table *whole = squares(count, side, 1, false);
    SCOPED(layout_table_destroy) struct layout_table *columns = squares(count, side, 2, true);
    sparse_make(*state, whole, &(const struct sparse_options){.state = NULL});
    expect_small(&(struct load){*state, whole, 0});
    expect_small(&(struct load){*state, columns, 1});
}

static void few_tensors(void **state)
{
    check(state, 3, 8192);
}

static void many_tensors(void **state)
{
    check(state, 12288, 128);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {T(few_tensors), T(many_tensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
