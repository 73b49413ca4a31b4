/* dev_process.h - a process that outlives us: started with a record of who it is, found again by
 * it.
 *
 * Any thread; blocking on small files. The record is a file "pid start-time boot-id": a pid that
 * was given to another process since then is never taken for ours. The child waits until the record
 * is on disk, so at no time does one run that the next daemon would not find. */
#pragma once
#include "base/error.h"
#include <sys/types.h>

struct dev_process_options {
    const char *record, *log; /* paths */
    char *const *argv;        /* NULL-terminated; argv[0] is a path */
};
/* *pidfd becomes readable when it ends. */
enum status dev_process_start(const struct dev_process_options *options, pid_t *pid, int *pidfd,
                              struct error *err) MUST_CHECK;
/* STATUS_NOT_FOUND: none runs. */
enum status dev_process_find(const char *record, pid_t *pid, int *pidfd) MUST_CHECK;
