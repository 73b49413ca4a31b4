/* mem.h - memory: allocation that aborts, scoped cleanup, visible hand-over, arenas.
 *
 * Any thread. Out of memory aborts with a line on stderr: truth is in PostgreSQL, restart is the
 * tested path. In librondo it ends at the edge of the API instead (mem_die.h). Sizes are bytes. */
#pragma once
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t size) __attribute__((malloc, returns_nonnull)); /* zeroed */
void *mem_array(size_t count, size_t size)
    __attribute__((returns_nonnull)); /* zeroed; overflow aborts */
void *mem_resize(void *old, size_t count, size_t size)
    __attribute__((returns_nonnull)); /* new tail is not zeroed */
char *mem_strdup(const char *text);   /* NULL gives NULL */
void *mem_dup(const void *bytes, size_t size);
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2), returns_nonnull));

#define NEW(type) ((type *)mem_alloc(sizeof(type)))

/* SCOPED(journal_close) struct journal *j = ...; calls journal_close(j) when j leaves scope. The
 * destructor takes NULL. */
#define SCOPED(destructor) __attribute__((cleanup(scoped_##destructor)))
/* Once per destructor that is used with SCOPED, in the header that declares it. */
#define SCOPED_DESTRUCTOR(type, destructor)                                                        \
    static inline void scoped_##destructor(type *place)                                            \
    {                                                                                              \
        destructor(*place);                                                                        \
    }
/* Moves a pointer out of a scoped variable. */
#define TAKE(pointer) ((__typeof__(pointer))mem_take((void *)&(pointer)))
static inline void *mem_take(void *place)
{
    void *value = *(void **)place;
    *(void **)place = NULL;
    return value;
}
void mem_free(void *pointer); /* free(), for SCOPED */
SCOPED_DESTRUCTOR(void *, mem_free)
static inline void scoped_free_text(char **place)
{
    mem_free(*place);
}
#define SCOPED_TEXT __attribute__((cleanup(scoped_free_text)))

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define CONTAINER_OF(pointer, type, member)                                                        \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* An arena: many allocations, one release. For one scheduling pass or one RPC. One thread at a
 * time. */
struct arena;
struct arena *
arena_create(size_t bytes_max);          /* going past bytes_max aborts: bound the input first */
void arena_destroy(struct arena *arena); /* NULL is fine */
void *arena_alloc(struct arena *arena, size_t size); /* zeroed, aligned to 16 */
char *arena_strdup(struct arena *arena, const char *text);
void arena_reset(struct arena *arena); /* keeps the first block */
