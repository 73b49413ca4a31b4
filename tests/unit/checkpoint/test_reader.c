/* test_reader.c - what any number of ranks saved, any other number loads, bit for bit; what is
 * damaged is named. */
#include "tests/unit/checkpoint/io_faults.h"
#include "tests/unit/checkpoint/sharded.h"

/* Four ranks: by rows, by columns, in a grid, whole everywhere, as flat ranges, and of odd shapes.
 */
static const char four[] =
    "{\"format\":\"rondo-layout-1\",\"world\":4,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,100,200,300,401],[0,333]],\"ranks\":[[0],[1],[2],[3]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,401],[0,83,166,249,333]],\"ranks\":[[0],[1],[2],[3]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,256,512],[0,256,512]],\"ranks\":[[0],[1],[2],[3]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,97]],\"ranks\":[[0,1,2,3]]},"
    "{\"kind\":\"flat\",\"ranges\":[[0,0,31],[1,31,62],[2,62,93],[3,93,124]]},"
    "{\"kind\":\"grid\",\"cuts\":[],\"ranks\":[[0,1,2,3]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,64],[0,8,16]],\"ranks\":[[0,1],[2,3]]}],"
    "\"tensors\":[[\"rows\",\"F32\",[401,333],0],[\"columns\",\"F32\",[401,333],1],"
    "[\"grid\",\"BF16\",[512,512],2],[\"norm\",\"F64\",[97],3],[\"flat\",\"F16\",[5,4,6],4],"
    "[\"step\",\"I64\",[],5],[\"four bit\",\"F4\",[64,16],6],[\"mask\",\"BOOL\",[97],3]],"
    "\"aliases\":{}}";

static const char three[] =
    "{\"format\":\"rondo-layout-1\",\"world\":3,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,134,268,401],[0,333]],\"ranks\":[[2],[1],[0]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,401],[0,111,222,333]],\"ranks\":[[0],[1],[2]]},"
    "{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[100,512]],[1,[100,0],[412,300]],"
    "[2,[100,300],[412,212]]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,97]],\"ranks\":[[0,1,2]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,5],[0,4],[0,1,2,6]],\"ranks\":[[0],[1],[2]]},"
    "{\"kind\":\"grid\",\"cuts\":[],\"ranks\":[[0,1,2]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,10,20,64],[0,16]],\"ranks\":[[0],[1],[2]]}],"
    "\"tensors\":[[\"columns\",\"F32\",[401,333],0],[\"rows\",\"F32\",[401,333],1],"
    "[\"grid\",\"BF16\",[512,512],2],[\"norm\",\"F64\",[97],3],[\"flat\",\"F16\",[5,4,6],4],"
    "[\"step\",\"I64\",[],5],[\"four bit\",\"F4\",[64,16],6],[\"mask\",\"BOOL\",[97],3]],"
    "\"aliases\":{}}";

static void four_ranks_save_three_load(void **state)
{
    struct sharded *sharded = sharded_create(four);
    const char *dir = *state;

    sharded_save(sharded, dir);
    sharded_load(sharded, dir, four);
    sharded_load(sharded, dir, three);
    sharded_destroy(sharded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(four_ranks_save_three_load, unit_dir_setup,
                                        unit_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
