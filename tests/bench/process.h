/* process.h - child processes of the bench: run to their end, timed, within a limit. Blocking. */
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process_result {
    int code; /* exit status; 128 + signal */
    int64_t wall_us, cpu_us;
};

/* argv[0] is looked up in PATH. stdin is /dev/null, both outputs go to the file out (NULL:
 * /dev/null). Leads a process group of its own, which is killed at the limit. */
enum status process_start(const char *const *argv, const char *dir, const char *out, pid_t *pid,
                          struct error *err) MUST_CHECK;
/* DEADLINE: it was killed. CANCELLED: we were told to end. */
enum status process_wait(pid_t pid, int64_t limit_ms, struct process_result *result,
                         struct error *err) MUST_CHECK;
enum status process_run(const char *const *argv, const char *dir, const char *out, int64_t limit_ms,
                        struct process_result *result, struct error *err) MUST_CHECK;
/* The same; a code other than 0 is a failure, told with the end of its output. */
enum status process_must(const char *const *argv, const char *dir, const char *out,
                         int64_t limit_ms, struct process_result *result,
                         struct error *err) MUST_CHECK;
int64_t process_now_us(void); /* CLOCK_MONOTONIC */

/* SIGINT and SIGTERM set it; everything that waits looks at it. */
void process_watch_signals(void);
bool process_interrupted(void);
