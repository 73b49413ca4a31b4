/* vault_manifest.h - reads manifest.json back. For vault*.c only; any thread.
 *
 * Written by vault_manifest_build (vault.h). What is not exactly of that form is STATUS_DATA_LOSS:
 * a missing digest never passes for a right one. */
#pragma once
#include "base/error.h"
#include "proto/pb.h"

#define VAULT_MANIFEST_NAME           "manifest.json"
#define VAULT_MANIFEST_FORMAT         "rondo-checkpoint-1"
#define VAULT_MANIFEST_FORMAT_SHARDED "rondo-checkpoint-2" /* with layout and layout_digest */
#define VAULT_MANIFEST_MAX            ((size_t)64 << 20)

/* Free with pb__checkpoint__free_unpacked(out, NULL). read: the file in dir, of that SHA-256 (NULL:
 * any); STATUS_NOT_FOUND: there is none. */
enum status vault_manifest_read(int dir, const char *digest, Pb__Checkpoint **out,
                                struct error *err) MUST_CHECK;
enum status vault_manifest_parse(const void *bytes, size_t len, Pb__Checkpoint **out,
                                 struct error *err) MUST_CHECK;
