/* map.c - entries in an array in order of insertion, found through an open-addressed index.
 *
 * A removed entry stays in the array as a dead one (value NULL) until the next rebuild, so that
 * positions never move under an iteration that only removes. Rebuilds happen in put alone, when the
 * array is full; index has twice as many slots as the array, so probing always ends. */
#include "base/map.h"
#include "base/mem.h"
#include <assert.h>
#include <string.h>
#include <sys/random.h>

struct map_entry {
    uint64_t key; /* the number, or the text's hash */
    char *text;   /* NULL for numbers */
    void *value;  /* NULL: dead */
};

struct map {
    struct map_entry *entries;
    uint32_t *index; /* slot -> position in entries + 1; 0: never used */
    size_t len, cap; /* entries used, dead ones included; cap is a power of two or 0 */
    size_t count;    /* live ones */
    uint64_t seed[2];
};

#define MAP_CAP_LEAST ((size_t)8)
#define MAP_CAP_MOST  ((size_t)1 << 30)

/* --- hashing: SipHash-1-3, keyed, because names come from users */

struct sip {
    uint64_t a, b, c, d;
};

static uint64_t sip_rotate(uint64_t x, unsigned by)
{
    return (x << by) | (x >> (64 - by));
}

static void sip_round(struct sip *s)
{
    s->a += s->b;
    s->b = sip_rotate(s->b, 13) ^ s->a;
    s->a = sip_rotate(s->a, 32);
    s->c += s->d;
    s->d = sip_rotate(s->d, 16) ^ s->c;
    s->a += s->d;
    s->d = sip_rotate(s->d, 21) ^ s->a;
    s->c += s->b;
    s->b = sip_rotate(s->b, 17) ^ s->c;
    s->c = sip_rotate(s->c, 32);
}

static void sip_word(struct sip *s, uint64_t word)
{
    s->d ^= word;
    sip_round(s);
    s->a ^= word;
}

static uint64_t map_hash(const struct map *map, const void *bytes, size_t len)
{
    struct sip s = {map->seed[0] ^ 0x736f6d6570736575, map->seed[1] ^ 0x646f72616e646f6d,
                    map->seed[0] ^ 0x6c7967656e657261, map->seed[1] ^ 0x7465646279746573};
    const unsigned char *at = bytes;
    uint64_t word, last = (uint64_t)len << 56;

    for (; len >= 8; at += 8, len -= 8) {
        memcpy(&word, at, 8);
        sip_word(&s, word);
    }
    for (size_t i = 0; i < len; i++)
        last |= (uint64_t)at[i] << (8 * i);
    sip_word(&s, last);
    s.c ^= 0xff;
    sip_round(&s);
    sip_round(&s);
    sip_round(&s);
    return s.a ^ s.b ^ s.c ^ s.d;
}

static size_t map_slot(const struct map *map, uint64_t key, const char *text)
{
    uint64_t hash = text ? key : map_hash(map, &key, sizeof(key));
    return (size_t)hash & (2 * map->cap - 1);
}

/* --- life */

struct map *map_create(void)
{
    struct map *map = NEW(struct map);
    if (getrandom(map->seed, sizeof(map->seed), 0) != (ssize_t)sizeof(map->seed))
        map->seed[0] = (uint64_t)(uintptr_t)map; /* order never depends on it */
    return map;
}

void map_destroy(struct map *map)
{
    if (!map)
        return;
    for (size_t i = 0; i < map->len; i++)
        mem_free(map->entries[i].text);
    mem_free(map->entries);
    mem_free(map->index);
    mem_free(map);
}

size_t map_count(const struct map *map)
{
    return map->count;
}

/* --- lookup and change */

static struct map_entry *map_find(const struct map *map, uint64_t key, const char *text)
{
    if (map->count == 0)
        return NULL;
    size_t mask = 2 * map->cap - 1;
    for (size_t slot = map_slot(map, key, text); map->index[slot]; slot = (slot + 1) & mask) {
        struct map_entry *entry = &map->entries[map->index[slot] - 1];
        if (entry->value && entry->key == key && !entry->text == !text &&
            (!text || strcmp(entry->text, text) == 0))
            return entry;
    }
    return NULL;
}

static void map_link(struct map *map, size_t position)
{
    const struct map_entry *entry = &map->entries[position];
    size_t slot = map_slot(map, entry->key, entry->text);
    while (map->index[slot])
        slot = (slot + 1) & (2 * map->cap - 1);
    map->index[slot] = (uint32_t)position + 1;
}

/* Drops dead entries and leaves at least as many free places as live ones. */
static void map_rebuild(struct map *map)
{
    size_t cap = MAP_CAP_LEAST, len = 0;

    assert(map->count < MAP_CAP_MOST / 2);
    while (cap < 2 * map->count)
        cap *= 2;
    struct map_entry *entries = mem_array(cap, sizeof(*entries));
    for (size_t i = 0; i < map->len; i++)
        if (map->entries[i].value)
            entries[len++] = map->entries[i];
    mem_free(map->entries);
    mem_free(map->index);
    map->entries = entries;
    map->index = mem_array(2 * cap, sizeof(*map->index));
    map->len = len;
    map->cap = cap;
    for (size_t i = 0; i < len; i++)
        map_link(map, i);
}

static void *map_store(struct map *map, uint64_t key, const char *text, void *value)
{
    assert(value);
    struct map_entry *entry = map_find(map, key, text);
    if (entry) {
        void *old = entry->value;
        entry->value = value;
        return old;
    }
    if (map->len == map->cap)
        map_rebuild(map);
    map->entries[map->len] = (struct map_entry){key, mem_strdup(text), value};
    map_link(map, map->len);
    map->len++;
    map->count++;
    return NULL;
}

static void *map_drop(struct map *map, struct map_entry *entry)
{
    if (!entry)
        return NULL;
    void *old = entry->value;
    mem_free(entry->text);
    entry->text = NULL;
    entry->value = NULL;
    map->count--;
    return old;
}

void *map_get(const struct map *map, uint64_t key)
{
    const struct map_entry *entry = map_find(map, key, NULL);
    return entry ? entry->value : NULL;
}

void *map_put(struct map *map, uint64_t key, void *value)
{
    return map_store(map, key, NULL, value);
}

void *map_remove(struct map *map, uint64_t key)
{
    return map_drop(map, map_find(map, key, NULL));
}

void *map_get_text(const struct map *map, const char *key)
{
    const struct map_entry *entry = map_find(map, map_hash(map, key, strlen(key)), key);
    return entry ? entry->value : NULL;
}

void *map_put_text(struct map *map, const char *key, void *value)
{
    return map_store(map, map_hash(map, key, strlen(key)), key, value);
}

void *map_remove_text(struct map *map, const char *key)
{
    return map_drop(map, map_find(map, map_hash(map, key, strlen(key)), key));
}

void *map_next(const struct map *map, size_t *at)
{
    while (*at < map->len) {
        void *value = map->entries[(*at)++].value;
        if (value)
            return value;
    }
    return NULL;
}
