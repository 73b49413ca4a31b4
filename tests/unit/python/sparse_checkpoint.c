/* sparse_checkpoint.c - makes a large checkpoint of zeros for a test in another language: DIR, the
 * declared layout's file, the file that is to be each rank's state.json. */
#include "tests/unit/checkpoint/sparse.h"

static char *text_of(const char *path)
{
    struct error err;
    char *bytes = NULL;
    size_t len;

    if (file_read(path, LAYOUT_BYTES_MAX, &bytes, &len, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return bytes;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        (void)fprintf(stderr, "Usage: sparse_checkpoint DIR LAYOUT STATE\n");
        return 2;
    }
    SCOPED_TEXT char *layout = text_of(argv[2]);
    SCOPED_TEXT char *state = text_of(argv[3]);
    SCOPED(layout_table_destroy) struct layout_table *declared = sharded_layout(layout);
    SCOPED(layout_table_destroy) struct layout_table *storage = NULL;
    const struct sparse_options options = {.state = state};
    struct error err;

    if (layout_table_assign(declared, &storage, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    sparse_make(argv[1], storage, &options);
    return 0;
}
