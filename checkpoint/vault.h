/* vault.h - a directory that keeps checkpoints: stage a part, seal, verify, delete. Plain form:
 * opaque files in a directory a rank.
 *
 * Blocking; any thread: agents call it from the worker pool. Layout:
 * <vault>/job-<id>/step-<n>.<attempt>/<role>-<rank>/files and manifest.json beside the parts,
 * written last: temp, fsync, rename, fsync of the directory. That rename is the only sealing point.
 */
#pragma once
#include "base/error.h"
#include "base/text.h"
#include "proto/pb.h"
#include <stdatomic.h>

/* "job-7/step-120.3" (relative to the vault); of a later incarnation of attempt 3
 * "job-7/step-120.3.2": none writes where another has written. */
void vault_checkpoint_path(const Pb__WorkerKey *key, int64_t step, char *out, size_t cap);
/* Makes <vault>/<path>/<role>-<rank> for a worker to write into, owned by uid:gid (-1: leave);
 * parents synced. The part is empty, whatever an earlier torn save left; STATUS_EXISTS once the
 * checkpoint is sealed. Path in out. */
enum status vault_part_create(const char *vault, const char *path, const char *role, uint32_t rank,
                              int64_t uid, int64_t gid, char *out, size_t cap,
                              struct error *err) MUST_CHECK;
/* Digests and syncs every file below the part's directory (no links, no devices; names are data:
 * checked UTF-8 without ".." parts); 100,000 files at most. Fills part->files sorted by path,
 * relative to the checkpoint's directory. stop: see digest_fd. */
enum status vault_part_digest(const char *vault, const char *path, const char *role, uint32_t rank,
                              const atomic_bool *stop, Pb__CheckpointPart **out,
                              struct error *err) MUST_CHECK;
/* The exact bytes of manifest.json for this checkpoint (JSON, stable order): pure. digest: SHA-256
 * hex of them. */
void vault_manifest_build(const Pb__Checkpoint *checkpoint, struct text *out, char digest[65]);
/* Idempotent: an equal manifest that is already there is a success; another one is STATUS_ABORTED.
 */
enum status vault_seal(const char *vault, const char *path, const void *manifest, size_t len,
                       struct error *err) MUST_CHECK;
/* Reads manifest.json, compares its digest (NULL: any), then sizes and, with deep, every byte.
 * STATUS_DATA_LOSS names the file. */
enum status vault_verify(const char *vault, const char *path, const char *digest, bool deep,
                         struct error *err) MUST_CHECK;
/* As much of it as must be known before a program loads it: of a sharded one the sizes, since its
 * loader checks each byte; of a plain one every byte. STATUS_UNAVAILABLE: the vault itself is empty
 * or not there, which says nothing of the checkpoint. */
enum status vault_verify_resume(const char *vault, const char *path, const char *digest,
                                struct error *err) MUST_CHECK;
/* Un-seals (rename of the manifest to a tombstone, fsync) and then removes the files. Missing:
 * success. */
enum status vault_delete(const char *vault, const char *path, struct error *err) MUST_CHECK;
