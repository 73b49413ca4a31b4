/* vault_audit.h - reads a whole checkpoint again, a piece at a time, and digests it anew: is every
 * byte what was committed, and what is its identity (SHA-256 of each file, and of their list)?
 *
 * Blocking; any thread, one at a time. A caller that reads a piece now and then leaves the disk to
 * others. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vault_audit_part {
    const char *role; /* borrowed from the audit */
    uint32_t rank;
    char sha256[65]; /* of the lines "<sha256>  <path>\n" of its files, in the manifest's order */
};
struct vault_audit;
/* Reads the manifest and compares its digest (NULL: any). node: only the parts that it wrote; NULL:
 * all of them. STATUS_DATA_LOSS: the manifest is not what it was. */
enum status vault_audit_begin(const char *vault, const char *path, const char *digest,
                              const char *node, struct vault_audit **out,
                              struct error *err) MUST_CHECK;
void vault_audit_destroy(struct vault_audit *audit); /* NULL is fine */
SCOPED_DESTRUCTOR(struct vault_audit *, vault_audit_destroy)
/* Reads at most about bytes_max more. *over: that was all of it. STATUS_DATA_LOSS names the file,
 * and of a shard the block. */
enum status vault_audit_step(struct vault_audit *audit, uint64_t bytes_max, bool *over,
                             struct error *err) MUST_CHECK;
/* Once it is over. */
size_t vault_audit_parts(const struct vault_audit *audit, const struct vault_audit_part **out);
uint64_t vault_audit_bytes(const struct vault_audit *audit); /* read so far */
