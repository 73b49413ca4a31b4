/* safetensors_verdict.c - what our reader makes of files, for a test in another language.
 *
 * Input: u32 little-endian length, a file, and so on. Output, of each: "reject", a NUL; or
 * "accept", lines "begin end dtype shape name" as they lie (shape by "x", names in hexadecimal),
 * "head", the header in hexadecimal that we would write for these tensors, a NUL. */
#include "base/mem.h"
#include "checkpoint/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)64 << 20)

static void put_hex(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        printf("%02x", (unsigned char)bytes[i]);
}

static void put_entry(const struct safetensors_entry *entry)
{
    printf("%llu %llu %s ", (unsigned long long)entry->begin, (unsigned long long)entry->end,
           dtype_name(entry->dtype));
    for (uint32_t i = 0; i < entry->dims; i++)
        printf("%s%llu", i ? "x" : "", (unsigned long long)entry->shape[i]);
    printf(" ");
    put_hex(entry->name, entry->name_len);
    printf("\n");
}

static void put_head(const struct safetensors *file)
{
    size_t count = safetensors_count(file), pairs = safetensors_meta_count(file);
    SCOPED(mem_free) void *memory = mem_array(count + 1, sizeof(struct safetensors_entry));
    struct safetensors_entry *entries = memory;
    struct text head;

    text_init(&head, SAFETENSORS_WRITE_MAX + SAFETENSORS_ALIGN);
    for (size_t i = 0; i < count; i++)
        entries[i] = *safetensors_at(file, i);
    if (safetensors_build(entries, count, pairs ? safetensors_meta_at(file, 0) : NULL, pairs, &head,
                          NULL) != STATUS_OK)
        abort();
    printf("head ");
    put_hex(text_get(&head), head.len);
    text_fini(&head);
}

static void put_verdict(const char *bytes, size_t len)
{
    struct safetensors *file = NULL;

    if (safetensors_parse(bytes, len, len, &file, NULL) != STATUS_OK) {
        printf("reject");
    } else {
        printf("accept\n");
        for (size_t i = 0; i < safetensors_count(file); i++)
            put_entry(safetensors_at(file, i));
        put_head(file);
    }
    putchar('\0');
    safetensors_destroy(file);
}

int main(void)
{
    unsigned char prefix[4];

    while (fread(prefix, 1, sizeof(prefix), stdin) == sizeof(prefix)) {
        size_t len =
            prefix[0] | (size_t)prefix[1] << 8 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 24;
        if (len > FILE_MAX)
            return 2;
        SCOPED(mem_free) void *bytes = mem_array(len, 1);
        if (fread(bytes, 1, len, stdin) != len)
            return 2;
        put_verdict(bytes, len);
    }
    return 0;
}
