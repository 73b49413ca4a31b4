/* stray.h - finding what is left of a worker among all processes, and ending it.
 *
 * Any thread but the loop's: reading /proc of a process in trouble can block. A process belongs to
 * a worker when it descends from the worker's shim, is in the worker's session, or carries
 * RONDO_WORKER=<tag> and no RONDO_DIR but the worker's: agents of other clusters on this machine
 * have workers of the same tags. Pids are reused: a stray is its pid and its start time. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct stray {
    pid_t pid, parent, session;
    char state;    /* as in /proc/PID/stat */
    int64_t start; /* clock ticks since boot */
};
struct stray_query {
    const char *tag; /* NULL: do not look at environments */
    const char *dir; /* of the worker; NULL: whatever it is */
    pid_t session;   /* 0: none */
    pid_t root;      /* the shim: its descendants, not itself; 0: none */
    int64_t since;   /* ticks: what is older belongs to somebody else */
};
#define STRAY_LIST_MAX 4096
struct stray_list {
    struct stray *items;
    size_t count;
    bool cut; /* there are more: look again */
};

/* Also right for names with spaces and parentheses. False: no such process. */
bool stray_read(pid_t pid, struct stray *out);
bool stray_parse(const char *line, struct stray *out);
/* Alive: exists with this start time and is no zombie. */
bool stray_is_alive(pid_t pid, int64_t start);
/* All of a worker that is alive now, without this process. Zombies are not alive. */
void stray_find(const struct stray_query *query, struct stray_list *out);
void stray_list_fini(struct stray_list *list);
/* False when it is gone already. Never hits a process that got the pid since. */
bool stray_kill(const struct stray *stray, int signo);
/* The process `rondo-shim <dir>`, for a shim that has not yet said its pid. 0: none. */
pid_t stray_find_shim(const char *dir);
