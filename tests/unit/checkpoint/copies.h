/* copies.h - a small sharded checkpoint of two ranks for tests of exports, imports and copies.
 *
 * Include it in one file of a program. */
#pragma once
#include "tests/unit/checkpoint/sharded.h"

#define COPIES_TENSORS                                                                             \
    "\"tensors\":[[\"model.rows\",\"F32\",[41,33],0],[\"model.cube\",\"BF16\",[3,5,7],1],"         \
    "[\"step\",\"I64\",[],2],[\"model.none\",\"F32\",[0],3],[\"optim.four\",\"F4\",[64,16],4],"    \
    "[\"model.mask\",\"BOOL\",[97],5]],\"aliases\":{\"model.tied\":\"model.rows\"}}"

static const char copies_two[] =
    "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,20,41],[0,33]],\"ranks\":[[0],[1]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,3],[0,2,5],[0,7]],\"ranks\":[[0],[1]]},"
    "{\"kind\":\"grid\",\"cuts\":[],\"ranks\":[[0,1]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,0]],\"ranks\":[[0]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,64],[0,8,16]],\"ranks\":[[0],[1]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,97]],\"ranks\":[[0,1]]}]," COPIES_TENSORS;

/* By columns, three ranks, one of which has next to nothing. */
static const char copies_three[] =
    "{\"format\":\"rondo-layout-1\",\"world\":3,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,41],[0,7,33,33]],\"ranks\":[[0],[1],[2]]},"
    "{\"kind\":\"boxes\",\"boxes\":[[0,[0,0,0],[3,5,1]],[1,[0,0,1],[3,1,6]],[1,[0,1,1],[3,4,6]]]},"
    "{\"kind\":\"grid\",\"cuts\":[],\"ranks\":[[2]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,0]],\"ranks\":[[0]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,10,64],[0,16]],\"ranks\":[[0],[1]]},"
    "{\"kind\":\"flat\",\"ranges\":[[0,0,50],[1,50,97]]}]," COPIES_TENSORS;

static inline struct reader *copies_open(const char *dir)
{
    static const struct reader_options options = {.partial = true};
    struct reader *reader = NULL;
    struct error err;

    if (reader_open(dir, "", &options, &reader, &err) != STATUS_OK)
        fail_msg("%s: %s", dir, err.text);
    return reader;
}

/* <dir>/source; its reader. */
static inline struct reader *copies_make(const struct sharded *sharded, const char *dir)
{
    SCOPED_TEXT char *source = mem_printf("%s/source", dir);

    assert_int_equal(mkdir(source, 0755), 0);
    sharded_save(sharded, source);
    return copies_open(source);
}

/* How many names there are in dir. */
static inline size_t copies_names(const char *dir)
{
    struct file_list list;

    assert_int_equal(file_list_read(dir, 1000, &list, NULL), STATUS_OK);
    size_t count = list.count;
    file_list_fini(&list);
    return count;
}
