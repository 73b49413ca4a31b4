/* mem.c - allocation that does not fail, and arenas. */
#include "base/mem.h"
#include "base/mem_die.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t mem_product(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        mem_die("array size overflows", count);
    return bytes;
}

void *mem_alloc(size_t size)
{
    void *made = calloc(1, size ? size : 1);
    if (!made)
        mem_die("out of memory", size);
    return made;
}

void *mem_array(size_t count, size_t size)
{
    return mem_alloc(mem_product(count, size));
}

void *mem_resize(void *old, size_t count, size_t size)
{
    size_t bytes = mem_product(count, size);
    void *made = realloc(old, bytes ? bytes : 1);
    if (!made)
        mem_die("out of memory", bytes);
    return made;
}

char *mem_strdup(const char *text)
{
    return text ? mem_dup(text, strlen(text) + 1) : NULL;
}

void *mem_dup(const void *bytes, size_t size)
{
    void *made = mem_alloc(size);
    if (size)
        memcpy(made, bytes, size);
    return made;
}

char *mem_printf(const char *fmt, ...)
{
    va_list args;
    char *made = NULL;

    va_start(args, fmt);
    if (vasprintf(&made, fmt, args) < 0)
        mem_die("out of memory", 0);
    va_end(args);
    return made;
}

void mem_free(void *pointer)
{
    free(pointer);
}

/* --- arenas */

#define ARENA_ALIGN      ((size_t)16)
#define ARENA_BLOCK      ((size_t)4096)
#define ARENA_BLOCK_MOST ((size_t)1 << 20)

struct arena_block {
    struct arena_block *older;
    size_t cap, used;
    _Alignas(16) unsigned char bytes[];
};

struct arena {
    struct arena_block *newest;
    size_t bytes, bytes_max; /* handed out, of how many */
};

static struct arena_block *arena_block_create(size_t cap, struct arena_block *older)
{
    struct arena_block *block = mem_alloc(sizeof(*block) + cap);
    block->older = older;
    block->cap = cap;
    return block;
}

struct arena *arena_create(size_t bytes_max)
{
    struct arena *arena = NEW(struct arena);
    arena->bytes_max = bytes_max;
    return arena;
}

void arena_destroy(struct arena *arena)
{
    if (!arena)
        return;
    while (arena->newest) {
        struct arena_block *older = arena->newest->older;
        mem_free(arena->newest);
        arena->newest = older;
    }
    mem_free(arena);
}

static struct arena_block *arena_grow(struct arena *arena, size_t size)
{
    size_t cap = arena->newest ? arena->newest->cap * 2 : ARENA_BLOCK;
    if (cap > ARENA_BLOCK_MOST)
        cap = ARENA_BLOCK_MOST;
    arena->newest = arena_block_create(cap < size ? size : cap, arena->newest);
    return arena->newest;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    if (size > arena->bytes_max || arena->bytes > arena->bytes_max - size)
        mem_die("arena is full", size);
    arena->bytes += size;
    size_t rounded = (size + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
    if (rounded < size)
        mem_die("arena is full", size);
    struct arena_block *block = arena->newest;
    if (!block || block->cap - block->used < rounded)
        block = arena_grow(arena, rounded);
    void *made = block->bytes + block->used;
    block->used += rounded;
    return made;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    size_t size = strlen(text) + 1;
    char *made = arena_alloc(arena, size);
    memcpy(made, text, size);
    return made;
}

void arena_reset(struct arena *arena)
{
    while (arena->newest && arena->newest->older) {
        struct arena_block *older = arena->newest->older;
        mem_free(arena->newest);
        arena->newest = older;
    }
    if (arena->newest) {
        memset(arena->newest->bytes, 0, arena->newest->used);
        arena->newest->used = 0;
    }
    arena->bytes = 0;
}
