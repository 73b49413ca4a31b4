/* launcher_shim_wire.h - the agent's side of the shim's wire format: composing requests, reading
 * records.
 *
 * Any thread; pure but for the file reads. Format: shim/README.md. Records of every earlier version
 * stay readable; unknown keys are skipped. */
#pragma once
#include "agent/shim/shim_wire.h"
#include "base/error.h"
#include "base/text.h"
#include <stdbool.h>
#include <sys/types.h>

struct launcher_shim_pid { /* record `pid` */
    char boot_id[64];
    pid_t shim, worker;
    int64_t shim_start, worker_start, started_us;
    char cgroup2[SHIM_WIRE_PATH_MAX], cgroup1[SHIM_WIRE_PATH_MAX];
    char cgroup_pids[SHIM_WIRE_PATH_MAX];
    char tag[SHIM_WIRE_NAME_MAX + 1];
};
struct launcher_shim_exit { /* record `exit` */
    int stage, exec_errno, code, signal;
    bool gone;
    int64_t ended_us, rss_kib;
};

/* A request in the making; the header is completed by finish. */
void launcher_shim_wire_begin(struct text *out);
void launcher_shim_wire_bytes(struct text *out, enum shim_wire_type type, const void *bytes,
                              size_t len);
void launcher_shim_wire_text(struct text *out, enum shim_wire_type type, const char *text);
/* An older shim skips it. */
void launcher_shim_wire_text_new(struct text *out, enum shim_wire_type type, const char *text);
void launcher_shim_wire_number(struct text *out, enum shim_wire_type type, uint32_t number);
void launcher_shim_wire_strings(struct text *out, enum shim_wire_type type,
                                const char *const *strings);
/* STATUS_EXHAUSTED when it is past the format's bounds. */
enum status launcher_shim_wire_finish(struct text *out, struct error *err) MUST_CHECK;

/* STATUS_DATA_LOSS when incomplete or malformed. */
enum status launcher_shim_wire_pid(const char *bytes, size_t len, struct launcher_shim_pid *out,
                                   struct error *err) MUST_CHECK;
enum status launcher_shim_wire_exit(const char *bytes, size_t len, struct launcher_shim_exit *out,
                                    struct error *err) MUST_CHECK;
/* A record from dir: a regular file of our own (nobody else may say which processes are ours).
 * STATUS_NOT_FOUND when there is none. *len is at most SHIM_WIRE_RECORD_MAX. */
enum status launcher_shim_wire_read(const char *dir, const char *name, char *bytes, size_t *len,
                                    struct error *err) MUST_CHECK;
/* "run /bin/x: Permission denied (as nobody)": what an exit record with a stage means. user NULL:
 * the agent's own. */
void launcher_shim_wire_explain(const struct launcher_shim_exit *record, const char *program,
                                const char *cwd, const char *user, struct text *out);
