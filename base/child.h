/* child.h - a bounded child process on the libuv loop: probes, initdb, tar, whatever may hang.
 *
 * Loop thread only. The child is a session and process group of its own; at the deadline, at cancel
 * and when it has exited the whole group is killed. The callback fires exactly once, on the loop,
 * never before child_start returns; the loop never waits for a child that cannot be killed.
 * Descriptors above 2 are not passed on (all of ours are close-on-exec). */
#pragma once
#include "base/error.h"
#include "base/loop.h"
#include "base/mem.h"
#include <stdbool.h>
#include <sys/types.h>

struct child;

struct child_options {
    const char *const *argv; /* NULL-terminated; argv[0] is looked up in PATH; no shell */
    const char *const *env;  /* NULL-terminated "K=v"; NULL: ours */
    const char *dir;         /* NULL: ours */
    const char *input;       /* written to its stdin; NULL: /dev/null */
    size_t input_len;
    size_t output_max;  /* of stdout and of stderr each; 0: 64 KiB. More is read and dropped. */
    int64_t timeout_us; /* 0: 60 s */
    uid_t uid;          /* 0 with gid 0: unchanged */
    gid_t gid;
};

/* Valid during the callback only. */
struct child_result {
    enum status st; /* OK: it ran and exited by itself, whatever its code; DEADLINE; CANCELLED;
                       NOT_FOUND, DENIED...: it could not be started */
    int exit_code;  /* -1: a signal ended it, or it never ran */
    int signal;     /* 0: none */
    const char *output, *errors; /* NUL-terminated, never NULL */
    size_t output_len, errors_len;
    bool cut;                /* more came than output_max */
    const struct error *err; /* what went wrong when st is not OK; else NULL */
};
typedef void (*child_done)(void *arg, const struct child_result *result);

/* Copies what options point to. Never NULL: a failure to start is told to the callback too. */
struct child *child_start(struct loop *loop, const struct child_options *options, child_done done,
                          void *arg);
/* Kills it; the callback follows with CANCELLED. Not after the callback. */
void child_cancel(struct child *child);
pid_t child_pid(const struct child *child); /* 0: not running */
