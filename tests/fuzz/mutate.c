/* mutate.c - see mutate.h. */
#include "tests/fuzz/mutate.h"
#include <string.h>

#define EDIT_BYTES 5

enum edit { EDIT_SET, EDIT_FLIP, EDIT_INSERT, EDIT_REMOVE, EDIT_REPEAT, EDIT_CUT, EDIT_COUNT };

static void open_gap(uint8_t *document, size_t *len, size_t cap, size_t at, size_t count)
{
    if (*len + count > cap)
        return;
    memmove(document + at + count, document + at, *len - at);
    *len += count;
}

static void close_gap(uint8_t *document, size_t *len, size_t at, size_t count)
{
    if (count > *len - at)
        count = *len - at;
    memmove(document + at, document + at + count, *len - at - count);
    *len -= count;
}

static void edit_apply(const uint8_t *edit, uint8_t *document, size_t *len, size_t cap)
{
    const size_t at = ((size_t)edit[1] | (size_t)edit[2] << 8) % *len, before = *len;
    switch (edit[0] % EDIT_COUNT) {
    case EDIT_SET:
        document[at] = edit[3];
        break;
    case EDIT_FLIP:
        document[at] ^= (uint8_t)(1u << edit[3] % 8);
        break;
    case EDIT_INSERT:
        open_gap(document, len, cap, at, 1);
        document[at] = edit[3];
        break;
    case EDIT_REMOVE:
        close_gap(document, len, at, (size_t)edit[3] % 32 + 1);
        break;
    case EDIT_REPEAT: /* the bytes from here on come twice */
        open_gap(document, len, cap, at, (size_t)edit[3] + 1);
        if (*len > before && at + *len - before < before)
            memcpy(document + at, document + at + (*len - before), *len - before);
        break;
    default:
        *len = edit[4] % 8 == 0 ? at : *len; /* cuts hide the edits that follow: seldom */
        break;
    }
}

void mutate_apply(const uint8_t *edits, size_t size, uint8_t *document, size_t *len, size_t cap)
{
    for (size_t i = 0; i < MUTATE_EDITS_MAX && (i + 1) * EDIT_BYTES <= size && *len > 0; i++)
        edit_apply(edits + i * EDIT_BYTES, document, len, cap);
}

uint64_t mutate_random(uint64_t *seed)
{
    uint64_t value = *seed += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}
