/* vault_store.h - a vault as whoever reads and keeps it sees it: objects by name, read by byte
 * range, put whole.
 *
 * Blocking; any thread; a store may be used by several at once. Names are "a/b/c" below the store,
 * checked. No verb appends, renames or locks, so that a store of objects can be another
 * implementation of the same verbs. Of a directory: no link is followed, what is put is there whole
 * or not at all, also after a crash, and a rename whose answer a server of files lost
 * is recognised. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VAULT_STORE_PUT_MAX ((size_t)64 << 20)

/* How far what is in it outlives what: a copy in NODE is lost with its node, one in SHARED with the
 * file system that several nodes mount, one in OBJECT with a service elsewhere. */
enum vault_store_class { VAULT_STORE_NODE, VAULT_STORE_SHARED, VAULT_STORE_OBJECT };
const char *vault_store_class_name(enum vault_store_class kind);
bool vault_store_class_find(const char *name, enum vault_store_class *out);

struct vault_store;
/* Called for each object below a prefix, in no order. Another status than OK ends the listing and
 * is its result. */
typedef enum status (*vault_store_fn)(void *arg, const char *name, uint64_t bytes,
                                      struct error *err);

/* A directory that exists; kind NODE or SHARED. */
enum status vault_store_open_dir(const char *dir, enum vault_store_class kind,
                                 struct vault_store **out, struct error *err) MUST_CHECK;
void vault_store_close(struct vault_store *store); /* NULL is fine */
SCOPED_DESTRUCTOR(struct vault_store *, vault_store_close)
enum vault_store_class vault_store_class_of(const struct vault_store *store);

/* Fills out with len bytes from at. STATUS_NOT_FOUND; OUT_OF_RANGE: the object ends before.
 * After a failure out holds anything. */
enum status vault_store_read(struct vault_store *store, const char *name, uint64_t at, void *out,
                             size_t len, struct error *err) MUST_CHECK;
enum status vault_store_size(struct vault_store *store, const char *name, uint64_t *out,
                             struct error *err) MUST_CHECK;
/* Durable when it returns; takes the place of an object of that name in one step. At most
 * VAULT_STORE_PUT_MAX bytes. */
enum status vault_store_put(struct vault_store *store, const char *name, const void *bytes,
                            size_t len, struct error *err) MUST_CHECK;
/* prefix: a directory's name, or "" for all. Nothing there: success, no call. Unfinished puts are
 * not listed. */
enum status vault_store_list(struct vault_store *store, const char *prefix, vault_store_fn fn,
                             void *arg, struct error *err) MUST_CHECK;
/* One object, or all below that name; missing: success. Durable when it returns. */
enum status vault_store_remove(struct vault_store *store, const char *name,
                               struct error *err) MUST_CHECK;
