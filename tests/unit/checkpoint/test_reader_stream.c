/* test_reader_stream.c - all bytes of all tensors come once and in order, whatever the window. */
#include "tests/unit/checkpoint/sharded.h"

#include "checkpoint/reader_stream.h"

static const char layout[] =
    "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,20,41],[0,33]],\"ranks\":[[0],[1]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,3],[0,2,5],[0,7]],\"ranks\":[[0],[1]]},"
    "{\"kind\":\"grid\",\"cuts\":[],\"ranks\":[[0,1]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,0]],\"ranks\":[[0]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,64],[0,8,16]],\"ranks\":[[0],[1]]}],"
    "\"tensors\":[[\"rows\",\"F32\",[41,33],0],[\"cube\",\"BF16\",[3,5,7],1],"
    "[\"step\",\"I64\",[],2],[\"none\",\"F32\",[0],3],[\"four\",\"F4\",[64,16],4]],"
    "\"aliases\":{}}";

struct seen {
    const struct sharded *sharded;
    const struct layout_table *stored;
    const struct reader_stream_piece *pieces;
    size_t piece;
    uint64_t at, total;
    size_t longest;
};

static enum status look(void *arg, size_t piece, uint64_t at, const void *bytes, size_t len,
                        struct error *err)
{
    struct seen *seen = arg;
    unsigned char want[65536];

    (void)err;
    if (piece != seen->piece) {
        assert_true(piece > seen->piece);
        seen->piece = piece;
        seen->at = 0;
    }
    assert_int_equal(at, seen->at);
    const struct layout_tensor *stored = layout_table_at(seen->stored, seen->pieces[piece].tensor);
    size_t tensor = 99; /* a storage table has an order of its own */
    assert_true(
        layout_table_find(seen->sharded->declared, stored->name, stored->name_len, &tensor));
    sharded_cut(layout_table_at(seen->sharded->declared, tensor), seen->sharded->full[tensor],
                &seen->pieces[piece].box, want);
    assert_memory_equal(bytes, want + at, len);
    seen->at += len;
    seen->total += len;
    seen->longest = len > seen->longest ? len : seen->longest;
    return STATUS_OK;
}

static void check_windows(const struct sharded *sharded, struct reader *reader,
                          const struct reader_stream_piece *pieces, size_t count, uint64_t total)
{
    static const size_t windows[] = {1, 7, 64, 130, 1000, 4096, 0};

    for (size_t i = 0; i < COUNT_OF(windows); i++) {
        struct seen seen = {sharded, reader_layout(reader), pieces, 0, 0, 0, 0};
        struct error err;
        if (reader_stream(reader, pieces, count, windows[i], look, &seen, &err) != STATUS_OK)
            fail_msg("window %zu: %s", windows[i], err.text);
        assert_int_equal(seen.total, total);
        assert_true(!windows[i] || seen.longest <= windows[i] || seen.longest <= 8 * 8);
    }
}

static void every_byte_comes_once_and_in_order(void **state)
{
    static const struct reader_options options = {.partial = true};
    struct sharded *sharded = sharded_create(layout);
    SCOPED(reader_close) struct reader *reader = NULL;
    struct reader_stream_piece pieces[8];
    uint64_t total = 0;

    sharded_save(sharded, *state);
    assert_int_equal(reader_open(*state, "", &options, &reader, NULL), STATUS_OK);
    for (size_t i = 0; i < 5; i++) {
        pieces[i].tensor = i;
        pieces[i].box = reader_stream_whole(layout_table_at(reader_layout(reader), i));
        total += layout_tensor_bytes(layout_table_at(reader_layout(reader), i));
    }
    check_windows(sharded, reader, pieces, 5, total);
    pieces[5] = pieces[0]; /* and parts of tensors, twice the same one */
    assert_true(layout_table_find(reader_layout(reader), "rows", 4, &pieces[5].tensor));
    pieces[5].box = (struct layout_box){{3, 5}, {20, 9}};
    pieces[6] = pieces[5];
    pieces[6].box.offset[0] = 21;
    check_windows(sharded, reader, pieces + 5, 2, 2 * 20 * 9 * 4);
    sharded_destroy(sharded);
}

static enum status refuse(void *arg, size_t piece, uint64_t at, const void *bytes, size_t len,
                          struct error *err)
{
    (void)piece;
    (void)at;
    (void)bytes;
    (void)len;
    ++*(int *)arg;
    return error_set(err, STATUS_EXHAUSTED, "no room");
}

static void a_refusal_ends_it(void **state)
{
    static const struct reader_options options = {.partial = true};
    struct sharded *sharded = sharded_create(layout);
    SCOPED(reader_close) struct reader *reader = NULL;
    struct reader_stream_piece piece = {0};
    struct error err;
    int calls = 0;

    sharded_save(sharded, *state);
    assert_int_equal(reader_open(*state, "", &options, &reader, NULL), STATUS_OK);
    piece.box = reader_stream_whole(layout_table_at(reader_layout(reader), 0));
    assert_int_equal(reader_stream(reader, &piece, 1, 100, refuse, &calls, &err), STATUS_EXHAUSTED);
    assert_string_equal(err.text, "no room");
    assert_int_equal(calls, 1);
    sharded_destroy(sharded);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(every_byte_comes_once_and_in_order),
        T(a_refusal_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
