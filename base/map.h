/* map.h - hash maps from 64-bit numbers or strings to pointers, kept in insertion order.
 *
 * Any thread, one at a time. Iteration order is insertion order (deterministic: the simulator
 * depends on it). Removing while iterating is allowed for the current entry. String keys are
 * copied. Values are borrowed: the map never frees them. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map;

struct map *map_create(void);
void map_destroy(struct map *map); /* NULL is fine */
size_t map_count(const struct map *map);

void *map_get(const struct map *map, uint64_t key); /* NULL when absent */
void *map_put(struct map *map, uint64_t key,
              void *value); /* returns the value it replaces, or NULL; value not NULL */
void *map_remove(struct map *map, uint64_t key); /* returns the value, or NULL */

void *map_get_text(const struct map *map, const char *key);
void *map_put_text(struct map *map, const char *key, void *value);
void *map_remove_text(struct map *map, const char *key);

/* size_t at = 0; while ((value = map_next(map, &at))) ... */
void *map_next(const struct map *map, size_t *at);
