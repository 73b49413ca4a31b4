/* staging.h - a directory that is made under another name beside its place, and appears there
 * whole, by one rename, durable.
 *
 * Blocking; one thread. "<target>.making-<pid>" is what a death leaves. Uses the umask. */
#pragma once
#include "base/error.h"
#include "base/mem.h"

struct staging;
/* STATUS_EXISTS: the target is there, and is no empty directory. */
enum status staging_create(const char *target, struct staging **out, struct error *err) MUST_CHECK;
void staging_destroy(struct staging *staging); /* NULL is fine; removes what was not published */
SCOPED_DESTRUCTOR(struct staging *, staging_destroy)
const char *staging_path(const struct staging *staging); /* where to write; a loan */
/* A file in it, new and durable; its mode is the umask's. */
enum status staging_file(const struct staging *staging, const char *name, const void *bytes,
                         size_t len, struct error *err) MUST_CHECK;
/* What is in it must be durable; its own names are made so here. */
enum status staging_publish(struct staging *staging, struct error *err) MUST_CHECK;
