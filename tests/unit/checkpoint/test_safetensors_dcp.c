/* test_safetensors_dcp.c - PyTorch DCP's keys: written, read back, and read strictly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "checkpoint/safetensors_dcp.h"

static const uint64_t shape[] = {2, 3};

/* A file of tensors "a" [2,3] and "s" [] whose DCP_SHARDING_INFO is that text. */
static enum status read_info(const char *info, struct safetensors_dcp **out, struct error *err)
{
    struct safetensors_entry entries[] = {
        {.name = "a", .name_len = 1, .dtype = DTYPE_U8, .dims = 2, .shape = shape},
        {.name = "s", .name_len = 1, .dtype = DTYPE_U8, .dims = 0, .shape = shape}};
    struct safetensors_pair meta = {SAFETENSORS_DCP_INFO, strlen(SAFETENSORS_DCP_INFO), info,
                                    info ? strlen(info) : 0};
    SCOPED(safetensors_destroy) struct safetensors *file = NULL;
    struct text head;

    text_init(&head, 0);
    assert_int_equal(safetensors_build(entries, 2, &meta, info ? 1 : 0, &head, NULL), STATUS_OK);
    assert_int_equal(safetensors_parse(head.data, head.len, head.len + 7, &file, NULL), STATUS_OK);
    text_fini(&head);
    return safetensors_dcp_read(file, out, err);
}

static void offsets_come_back(void **state)
{
    static const uint64_t at[] = {4, UINT64_C(1) << 40};
    const struct safetensors_dcp_entry entries[] = {{"a", 1, 2, at}, {"s", 1, 0, NULL}};
    SCOPED(safetensors_dcp_destroy) struct safetensors_dcp *dcp = NULL;
    struct text info;

    (void)state;
    text_init(&info, 0);
    safetensors_dcp_print(entries, 2, &info);
    assert_string_equal(text_get(&info), "{\"a\":{\"saved_offsets\":[4,1099511627776]},"
                                         "\"s\":{\"saved_offsets\":[]}}");
    assert_int_equal(read_info(text_get(&info), &dcp, NULL), STATUS_OK);
    assert_memory_equal(safetensors_dcp_offsets(dcp, 0), at, sizeof(at));
    text_fini(&info);
}

#define AT_0D "{\"saved_offsets\":[]}"
#define AT_2D "{\"saved_offsets\":[0,0]}"

static void anything_else_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "{\"a\":{\"saved_offsets\":[0,0]}}",
        "{\"a\":{\"saved_offsets\":[0]},\"s\":{\"saved_offsets\":[]}}",
        "{\"a\":{\"saved_offsets\":[0,0,0]},\"s\":{\"saved_offsets\":[]}}",
        "{\"a\":{\"saved_offsets\":[0,-1]},\"s\":{\"saved_offsets\":[]}}",
        "{\"a\":{\"saved_offsets\":[0,18446744073709551615]},\"s\":{\"saved_offsets\":[]}}",
        "{\"a\":{\"saved_offsets\":[0,0],\"x\":1},\"s\":{\"saved_offsets\":[]}}",
        "{\"a\":{},\"s\":{\"saved_offsets\":[]}}",
        "{\"a\":" AT_2D ",\"s\":" AT_0D ",\"t\":" AT_0D "}",
        "{\"a\":" AT_2D ",\"a\":" AT_2D ",\"s\":" AT_0D "}",
        "{\"a\":{\"saved_offsets\":[0,0]},\"s\":{\"saved_offsets\":[]}} x",
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct safetensors_dcp *dcp = NULL;
        struct error err = {0};
        if (read_info(bad[i], &dcp, &err) != STATUS_INVALID)
            fail_msg("taken: %s", bad[i]);
        assert_non_null(strstr(err.text, SAFETENSORS_DCP_INFO));
        assert_null(dcp);
    }
    struct safetensors_dcp *dcp = NULL;
    assert_int_equal(read_info(NULL, &dcp, NULL), STATUS_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_come_back),
        cmocka_unit_test(anything_else_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
