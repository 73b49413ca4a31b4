/* shim_record.h - the records `pid` and `exit`: short texts, `key value` a line, first
 * "rondo-shim 1", last "end".
 *
 * One thread. A record is complete when it exists (written aside, then renamed); no fsync: it must
 * survive the agent, not the machine, and after a power loss the boot id tells. */
#pragma once
#include "agent/shim/shim_wire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shim_record {
    size_t len;
    char text[SHIM_WIRE_RECORD_MAX];
};

void shim_record_begin(struct shim_record *record);
void shim_record_number(struct shim_record *record, const char *key, int64_t value);
void shim_record_text(struct shim_record *record, const char *key, const char *value);
void shim_record_end(struct shim_record *record);
/* Takes the disk space of `<name>.tmp` now. 0 or an errno. */
int shim_record_reserve(int dir, const char *name);
int shim_record_save(const struct shim_record *record, int dir, const char *name);
/* Sends it to the agent's pipe, if that still listens. */
void shim_record_send(const struct shim_record *record, int fd);
