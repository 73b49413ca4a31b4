/* record.h - packs a WorkerRecord (worker.proto) with its head into memory, ready for one write.
 *
 * One thread at a time per record. No allocation. False: it does not fit or is not valid, with the
 * reason for people in *why. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_BYTES_MAX     65536
#define RECORD_VALUES_MAX    256
#define RECORD_NAME_MAX      255
#define RECORD_MESSAGE_MAX   4096
#define RECORD_TRACEBACK_MAX 16384

struct record {
    unsigned char memory[RECORD_BYTES_MAX];
    unsigned char *bytes; /* the record, inside memory */
    size_t len;
};
struct record_value {
    const char *name; /* name_len bytes, not terminated */
    size_t name_len;
    bool is_integer;
    double number;
    int64_t integer;
};
bool record_report(struct record *record, int64_t step, int64_t samples, int64_t t_us,
                   const struct record_value *values, size_t count, const char **why);
/* Texts are cut at a character's boundary; traceback keeps its end, where the error is. */
void record_failure(struct record *record, const char *message, const char *traceback);
/* The checkpoint that was to be loaded is damaged, and where. */
void record_damaged(struct record *record, const char *message, const char *where);
void record_finished(struct record *record);
void record_joined(struct record *record);
