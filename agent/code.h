/* code.h - the code of jobs, by content: fetched once, checked, unpacked, shared read-only.
 *
 * Loop thread. <state>/code/<digest>/ is complete or absent (a rename makes it). Workers that want
 * the same code at the same time share one fetch. What nobody uses is removed, oldest use first,
 * past code_keep_mib. */
#pragma once
#include "agent/hub.h"

struct code_cache;
struct code_cache *code_cache_create(struct agent *agent, const char *dir);
void code_cache_destroy(struct code_cache *cache); /* NULL is fine */
/* What an earlier agent left: names in the directory. Half-made ones are removed. */
void code_cache_adopt(struct code_cache *cache, char *const *names, size_t count);
typedef void (*code_done)(void *arg, enum status st, const struct error *err, const char *dir);
/* On success the caller holds a use of it until code_cache_release. done may come at once. */
void code_cache_get(struct code_cache *cache, const char *digest, code_done done, void *arg);
/* Takes a use of code that is there (a worker of an earlier agent). */
void code_cache_hold(struct code_cache *cache, const char *digest);
void code_cache_release(struct code_cache *cache, const char *digest);
bool code_digest_is_valid(const char *digest);
