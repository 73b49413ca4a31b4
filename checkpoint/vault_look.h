/* vault_look.h - a vault, looked through directory by directory for who compares it with what he
 * knows: what each one is, and of each part of a sealed one whether its files are as the manifest
 * says.
 *
 * Blocking; any thread, one at a time. Changes nothing, follows no links. A caller that takes a
 * step now and then leaves the disk to others. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include "proto/pb.h"
#include <stdbool.h>

#define VAULT_LOOK_ASIDE "lost+found" /* what was set aside lies there: it is not looked at */

struct vault_look_options {
    const char *vault;
    const char *node; /* whose parts are read when deep; NULL: all are */
    const char *path; /* that directory alone; NULL: all */
    int64_t job;      /* only below job-<id>; 0: all */
    bool deep;        /* reads every byte of what has its sizes */
    bool whole;       /* manifests with their files */
    bool slots;       /* `vault` has slots, not checkpoints */
};
struct vault_look;
/* STATUS_NOT_FOUND: there is no such vault. */
enum status vault_look_begin(const struct vault_look_options *options, struct vault_look **out,
                             struct error *err) MUST_CHECK;
void vault_look_destroy(struct vault_look *look); /* NULL is fine */
SCOPED_DESTRUCTOR(struct vault_look *, vault_look_destroy)
/* *out: the next directory, the caller's; NULL: about bytes_max were read and it is not through
 * (*over false), or there is none left (*over true). */
enum status vault_look_step(struct vault_look *look, uint64_t bytes_max, Pb__VaultFound **out,
                            bool *over, struct error *err) MUST_CHECK;
uint64_t vault_look_bytes(const struct vault_look *look); /* read so far */
/* Are there directories of other jobs than was asked for? */
bool vault_look_has_others(const struct vault_look *look);

/* Moves a directory to lost+found in the same vault, under a name made of its path: nothing of it
 * is lost, and nobody takes it for a checkpoint of a job. Missing: STATUS_NOT_FOUND. */
enum status vault_look_set_aside(const char *vault, const char *path, struct error *err) MUST_CHECK;
