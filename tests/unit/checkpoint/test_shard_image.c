/* test_shard_image.c - what a rank's files hold, and that filling them digests every block. */
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_dcp.h"
#include "checkpoint/shard_image.h"
#include "tests/unit/checkpoint/sharded.h"

static const char two[] =
    "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,300,600],[0,200]],\"ranks\":[[0],[1]]},"
    "{\"kind\":\"flat\",\"ranges\":[[0,0,25],[1,25,60]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,7],[0,100,200]],\"ranks\":[[1],[0]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,9]],\"ranks\":[[1]]}],"
    "\"tensors\":[[\"w\",\"F32\",[600,200],0],[\"f\",\"I64\",[6,10],1],[\"c\",\"BF16\",[7,200],2],"
    "[\"other\",\"U8\",[9],3]],\"aliases\":{}}";

struct filled {
    struct sharded *sharded;
    struct shard_image *image;
    void **files;
};

static struct filled fill(uint32_t rank)
{
    struct filled filled = {.sharded = sharded_create(two)};
    struct sharded_pieces pieces =
        sharded_pieces_make(filled.sharded->declared, rank, filled.sharded->full);
    struct error err;

    if (shard_image_create(filled.sharded->storage, rank, &filled.image, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    filled.files = mem_array(shard_image_files(filled.image), sizeof *filled.files);
    for (uint32_t i = 0; i < shard_image_files(filled.image); i++)
        filled.files[i] = mem_alloc((size_t)shard_image_bytes(filled.image, i));
    if (shard_image_fill(filled.image, filled.sharded->declared, (const void *const *)pieces.memory,
                         filled.files, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    sharded_pieces_fini(&pieces);
    return filled;
}

static void filled_fini(struct filled *filled)
{
    for (uint32_t i = 0; i < shard_image_files(filled->image); i++)
        mem_free(filled->files[i]);
    mem_free(filled->files);
    shard_image_destroy(filled->image);
    sharded_destroy(filled->sharded);
}

/* Its own header, read strictly, places every piece where the image says, with the offsets that
 * PyTorch's reader looks for. */
static void headers_say_where_everything_is(void **state)
{
    struct filled filled = fill(0);
    const struct shard_image *image = filled.image;

    (void)state;
    assert_int_equal(shard_image_files(image), 2); /* the flat range is two boxes */
    assert_string_equal(shard_image_name(image, 1), "shard-00001-model-00002-of-00002.safetensors");
    assert_int_equal(shard_image_count(image), 4); /* none of "other" */
    for (size_t i = 0; i < shard_image_count(image); i++) {
        const struct shard_image_piece *piece = shard_image_at(image, i);
        const struct layout_tensor *tensor =
            layout_table_at(filled.sharded->storage, piece->tensor);
        SCOPED(safetensors_destroy) struct safetensors *file = NULL;
        SCOPED(safetensors_dcp_destroy) struct safetensors_dcp *dcp = NULL;
        SCOPED(mem_free) void *want = mem_alloc((size_t)piece->bytes);
        uint64_t bytes = shard_image_bytes(image, piece->piece);
        size_t at = 0; /* the storage layout has an order of its own */
        assert_int_equal(
            safetensors_parse(filled.files[piece->piece], (size_t)bytes, bytes, &file, NULL),
            STATUS_OK);
        assert_int_equal(safetensors_data_at(file) % 4096, 0);
        assert_int_equal(safetensors_dcp_read(file, &dcp, NULL), STATUS_OK);
        const struct safetensors_entry *entry =
            safetensors_find(file, tensor->name, tensor->name_len);
        assert_non_null(entry);
        assert_int_equal(safetensors_data_at(file) + entry->begin, piece->at);
        assert_int_equal(entry->end - entry->begin, piece->bytes);
        assert_true(
            layout_table_find(filled.sharded->declared, tensor->name, tensor->name_len, &at));
        sharded_cut(tensor, filled.sharded->full[at], &piece->box, want);
        assert_memory_equal((char *)filled.files[piece->piece] + piece->at, want,
                            (size_t)piece->bytes);
    }
    filled_fini(&filled);
}

static void every_block_is_digested(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct filled filled = fill(rank);
        const struct block_table *blocks = shard_image_blocks(filled.image);
        assert_int_equal(blocks->files_count, shard_image_files(filled.image));
        for (uint32_t i = 0; i < blocks->files_count; i++) {
            const unsigned char *bytes = filled.files[i];
            uint64_t len = shard_image_bytes(filled.image, i);
            assert_int_equal(blocks->files[i].bytes, len);
            for (uint64_t at = 0; at < len; at += BLOCK_TABLE_BLOCK)
                assert_int_equal(blocks->files[i].crcs[at / BLOCK_TABLE_BLOCK],
                                 digest_crc32c(0, bytes + at,
                                               len - at < BLOCK_TABLE_BLOCK ? (size_t)(len - at)
                                                                            : BLOCK_TABLE_BLOCK));
        }
        filled_fini(&filled);
    }
}

/* K21 K23: what a rank does not hold, it cannot write. */
static void a_layout_that_it_was_not_made_from_is_refused(void **state)
{
    SCOPED(layout_table_destroy)
    struct layout_table *other =
        sharded_layout("{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
                       "{\"kind\":\"grid\",\"cuts\":[[0,600],[0,200]],\"ranks\":[[1]]}],"
                       "\"tensors\":[[\"w\",\"F32\",[600,200],0]],\"aliases\":{}}");
    SCOPED(layout_table_destroy)
    struct layout_table *mine =
        sharded_layout("{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
                       "{\"kind\":\"grid\",\"cuts\":[[0,600],[0,200]],\"ranks\":[[0]]}],"
                       "\"tensors\":[[\"w\",\"F32\",[600,200],0]],\"aliases\":{}}");
    SCOPED(shard_image_destroy) struct shard_image *image = NULL;
    SCOPED(mem_free) void *file = NULL;
    const void *none = NULL;
    struct error err;

    (void)state;
    assert_int_equal(shard_image_create(mine, 2, &image, NULL), STATUS_INVALID);
    assert_int_equal(shard_image_create(mine, 0, &image, NULL), STATUS_OK);
    file = mem_alloc((size_t)shard_image_bytes(image, 0));
    assert_int_equal(shard_image_fill(image, other, &none, &file, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "tensor w"));
}

static void a_rank_without_pieces_has_no_file(void **state)
{
    SCOPED(layout_table_destroy)
    struct layout_table *table =
        sharded_layout("{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
                       "{\"kind\":\"grid\",\"cuts\":[[0,8]],\"ranks\":[[0]]}],"
                       "\"tensors\":[[\"w\",\"F32\",[8],0]],\"aliases\":{}}");
    SCOPED(shard_image_destroy) struct shard_image *image = NULL;

    (void)state;
    assert_int_equal(shard_image_create(table, 1, &image, NULL), STATUS_OK);
    assert_int_equal(shard_image_files(image), 0);
    assert_int_equal(shard_image_fill(image, table, NULL, NULL, NULL), STATUS_OK);
    assert_int_equal(shard_image_blocks(image)->files_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_say_where_everything_is),
        cmocka_unit_test(every_block_is_digested),
        cmocka_unit_test(a_layout_that_it_was_not_made_from_is_refused),
        cmocka_unit_test(a_rank_without_pieces_has_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
