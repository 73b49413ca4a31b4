/* vault_watch.h - checkpoints of programs without the SDK: finds complete ones by pattern and
 * marker, and links their files into a part of the vault.
 *
 * Any thread; blocks. The pattern is a path below the attempt's directory with {step} once in its
 * last part: "step-{step}", "ckpt/step-{step}". Files are linked where the file system can and
 * copied where it cannot: the program keeps its own names and may remove them at will. It may also
 * change all of it while we look: no link is followed, and only its user's own files are taken. */
#pragma once
#include "agent/vault_pool.h"

/* False: text says what is wrong with it. */
bool vault_watch_pattern_ok(const char *pattern, struct error *err);
/* "step-120" against "step-{step}" -> 120. */
bool vault_watch_match(const char *pattern, const char *name, int64_t *step);
enum status vault_watch_scan(struct vault_job *job, struct error *err) MUST_CHECK;
enum status vault_watch_import(struct vault_job *job, struct error *err) MUST_CHECK;
