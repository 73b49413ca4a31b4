/* tail.h - the records that a worker appends to its reports file (worker.proto), and report batches
 * made of them without decoding.
 *
 * Pure. The bytes are a worker's: each record is checked whole (length, CRC32C, every field of its
 * report, UTF-8) before any byte goes up, so that no worker can spoil its node's stream. */
#pragma once
#include "base/text.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAIL_RECORD_BYTES_MAX ((size_t)1 << 20)
#define TAIL_REPORT_BYTES_MAX ((size_t)256 << 10)
#define TAIL_NAMES_MAX        1024u
#define TAIL_DROPPED_MAX      ((uint64_t)1 << 40) /* a worker may say any number */

enum tail_result {
    TAIL_RECORD,    /* out is filled, *at stands behind it */
    TAIL_END,       /* no whole record is left (a torn one is a record not yet written) */
    TAIL_BROKEN,    /* what stands at *at can never become a record */
    TAIL_WRONG_CRC, /* whole by its length but not by its checksum: not yet written, or broken */
};
struct tail_record {
    const uint8_t *report; /* packed Report; NULL: none, or refused */
    size_t report_len;
    uint32_t points; /* values of the report */
    bool has_step, refused;
    int64_t step, samples; /* samples -1: not said */
    bool joined, finished;
    uint64_t dropped;       /* values that the worker had no room for, before this record */
    const uint8_t *failure; /* packed WorkerFailure; NULL: none */
    size_t failure_len;
};
enum tail_result tail_next(const uint8_t *bytes, size_t len, size_t *at, struct tail_record *out);
/* Is it a Report that every reader can unpack and print? Fills step, samples, points. */
bool tail_check_report(const uint8_t *bytes, size_t len, struct tail_record *out);

/* Encoded ReportBatch: begin, any number of adds, end. Batches follow each other in out as fields
 * `batches` of a BulkUp. */
struct tail_batch {
    struct text *out;
    size_t start; /* where this batch's bytes begin, behind room for its length */
};
struct tail_key {
    int64_t job;
    uint32_t attempt, rank, incarnation;
    const char *role;
};
void tail_batch_begin(struct tail_batch *batch, struct text *out, const struct tail_key *key);
void tail_batch_add(struct tail_batch *batch, const uint8_t *report, size_t len);
void tail_batch_end(struct tail_batch *batch, uint64_t dropped);
