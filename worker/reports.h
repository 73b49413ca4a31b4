/* reports.h - the file of records that a worker appends to and its agent tails (worker.proto).
 *
 * One thread at a time (rondo.c holds a lock). A record is one write; one that did not fit is cut
 * off again, so that the file never holds a hole of half a record with others behind it. One writer
 * a file: a lock that dies with the process. Bounded: past REPORTS_BYTES_MAX of blocks that the
 * agent has not given back (it punches holes behind what is acknowledged) reports are dropped. What
 * was lost for want of room is told ahead of the next record that has some. */
#pragma once
#include "worker/page.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define REPORTS_BYTES_MAX  ((int64_t)1 << 30)
#define REPORTS_RECORD_MAX 65536

struct reports {
    int fd; /* -1: closed */
    off_t end;
    uint32_t until_check;
    int over;         /* past the bound when last looked */
    uint64_t dropped; /* records */
    uint64_t untold;  /* values lost that no record has told of yet: added to by the caller */
    _Atomic uint64_t *doorbell;
};

/* 0, or -errno; -EWOULDBLOCK: another process is the writer. */
int reports_open(struct reports *reports, int dir, _Atomic uint64_t *doorbell);
/* Head and body in one piece; the length and CRC32C in the head are filled in here. */
int reports_append(struct reports *reports, unsigned char *record, size_t len);
void reports_close(struct reports *reports);
