/* fuzz_manifest.c - any bytes, and changed good ones, as manifest.json. What is accepted is built
 * again and read back as the same bytes; its paths stay inside the checkpoint. */
#include "base/mem.h"
#include "checkpoint/vault.h"
#include "checkpoint/vault_manifest.h"
#include "tests/fuzz/mutate.h"
#include <stdlib.h>
#include <string.h>

#define DOCUMENT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char good[] =
    "{\"format\": \"rondo-checkpoint-1\", \"id\": 9, \"job\": 7, \"attempt\": 2, \"step\": 100,"
    " \"samples\": 9223372036854775807, \"parent\": 0, \"world\": 2, \"created_us\": 1, \"parts\": "
    "["
    "{\"role\": \"w\", \"rank\": 1, \"node\": \"n\\u00e9\", \"samples\": 5, \"files\": ["
    "{\"path\": \"a/b\\\"c\", \"bytes\": 12, \"crc32c\": 4294967295,"
    " \"xxh3\": \"0123456789abcdef0123456789abcdef\"},"
    "{\"path\": \"d\", \"bytes\": 0, \"crc32c\": 0,"
    " \"xxh3\": \"0123456789abcdef0123456789abcdef\"}]},"
    "{\"role\": \"w\", \"rank\": 0, \"node\": \"n\", \"samples\": 5, \"files\": []}]}";

static void check_paths(const Pb__Checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->n_parts; i++)
        for (size_t k = 0; k < checkpoint->parts[i]->n_files; k++) {
            const char *path = checkpoint->parts[i]->files[k]->path;
            if (*path == '\0' || *path == '/' || strcmp(path, "..") == 0 ||
                strncmp(path, "../", 3) == 0 || strstr(path, "/../"))
                abort();
        }
}

static void come_back(const Pb__Checkpoint *checkpoint)
{
    struct text first, second;
    char digest[65], again[65];
    Pb__Checkpoint *back = NULL;

    text_init(&first, 0);
    text_init(&second, 0);
    vault_manifest_build(checkpoint, &first, digest);
    if (vault_manifest_parse(text_get(&first), first.len, &back, NULL) != STATUS_OK)
        abort();
    vault_manifest_build(back, &second, again);
    if (first.len != second.len || strcmp(digest, again) != 0)
        abort();
    pb__checkpoint__free_unpacked(back, NULL);
    text_fini(&first);
    text_fini(&second);
}

static void feed(const void *bytes, size_t len)
{
    Pb__Checkpoint *checkpoint = NULL;
    struct error err;

    if (vault_manifest_parse(bytes, len, &checkpoint, &err) != STATUS_OK)
        return;
    check_paths(checkpoint);
    come_back(checkpoint);
    pb__checkpoint__free_unpacked(checkpoint, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t document[DOCUMENT_MAX];
    size_t len = sizeof(good) - 1;

    if (size == 0)
        return 0;
    if (data[0] == 0) {
        feed(data + 1, size - 1);
        return 0;
    }
    memcpy(document, good, len);
    mutate_apply(data + 1, size - 1, document, &len, sizeof(document));
    feed(document, len);
    return 0;
}
