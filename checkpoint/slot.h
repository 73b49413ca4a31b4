/* slot.h - a file in tmpfs in which a rank hands its part of a checkpoint over to the agent: what
 * is written before the worker goes on, and what a later agent finds after the worker has died.
 *
 * Made by the agent in the size that the worker asked for (WorkerAsk STAGE), owned by the worker's
 * user. The worker allocates its blocks (posix_fallocate: a full tmpfs is an error there, not a
 * SIGBUS), maps it and may do so long before the first save. A path that the agent named before is
 * the same file: the mapping may be kept. Form: a head of SLOT_HEAD_BYTES, then the images of the
 * part's files, each at a multiple of 4096, exactly the bytes that the file will have.
 *
 * The worker: slot_begin, slot_add for each file, the bytes, slot_fill. From the store of FILLED on
 * the save goes on without it. The agent: slot_read, which believes nothing, reads the bytes with
 * pread (a worker may cut the file at any time), slot_set_state PERSISTED.
 * Any thread; no allocation; no OpenSSL: librondo links it. Little-endian, as everything here. */
#pragma once
#include "base/error.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLOT_MAGIC      UINT64_C(0x31544f4c53444e52) /* "RNDSLOT1" */
#define SLOT_VERSION    1
#define SLOT_HEAD_BYTES 8192
#define SLOT_ALIGN      4096
#define SLOT_FILES_MAX  64
#define SLOT_NAME_MAX   96 /* with its NUL: letters, digits, '.', '-', '_'; no '.' first */

#define SLOT_BLOCKS_NAME "blocks.crc32c"
#define SLOT_STATE_NAME  "state.json"
#define SLOT_LAYOUT_NAME "layout.json" /* in every rank's slot; kept of rank 0 only */

#define SLOT_PLACES 2 /* slots of a rank at a time */

enum slot_state { SLOT_EMPTY = 0, SLOT_FILLING = 1, SLOT_FILLED = 2, SLOT_PERSISTED = 3 };

struct slot_file {
    char name[SLOT_NAME_MAX];
    uint64_t offset, bytes;
    uint64_t reserved;
};
struct slot_head { /* wire format between librondo and agents: fields never move */
    uint64_t magic;
    uint32_t version;
    _Atomic uint32_t state; /* enum slot_state */
    int64_t step, samples;  /* samples -1: not said */
    uint64_t bytes;         /* of the whole file */
    uint32_t files_count;
    uint32_t crc32c; /* of the head with state and this 0: set before FILLED */
    char layout_digest[40];
    uint64_t reserved[53];
    struct slot_file files[SLOT_FILES_MAX];
};
_Static_assert(sizeof(struct slot_head) == SLOT_HEAD_BYTES, "the head is two pages");

/* Bytes of a slot for files of these sizes; 0: there is no such slot (too many files, too large).
 */
uint64_t slot_bytes(const uint64_t *file_bytes, size_t count);
bool slot_name_ok(const char *name);
/* The place that a slot of this file name takes: 0 or 1 for "slot-0", "slot-1" and what comes after
 * them in another size, "slot-0.1", "slot-0.2". -1: no slot's name. */
int slot_place(const char *name);

/* Worker. head is the beginning of a mapping of `bytes` bytes. Whatever was there is gone. */
void slot_begin(struct slot_head *head, uint64_t bytes, int64_t step);
/* One file more, behind the ones before; *offset: where its bytes go, from the mapping's begin.
 * STATUS_EXHAUSTED: no room; INVALID: its name. */
enum status slot_add(struct slot_head *head, const char *name, uint64_t bytes, uint64_t *offset,
                     struct error *err) MUST_CHECK;
/* Everything is in place: FILLED, as the last store. layout_digest: 32 characters of hex. */
void slot_fill(struct slot_head *head, int64_t samples, const char *layout_digest);

/* Agent. The head, copied and checked: its sum, names, places inside the file, no overlap. The file
 * must be a regular one. STATUS_PRECONDITION: not FILLED and not PERSISTED, nothing in it counts;
 * STATUS_DATA_LOSS: not what a worker of ours writes. */
enum status slot_read(int fd, struct slot_head *out, struct error *err) MUST_CHECK;
enum status slot_set_state(int fd, enum slot_state state, struct error *err) MUST_CHECK;
/* NULL: there is no file of that name. */
const struct slot_file *slot_find(const struct slot_head *head, const char *name);
