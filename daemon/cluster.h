/* cluster.h - the embedded default database: a private PostgreSQL cluster in a directory.
 *
 * Loop thread only (loop_uv). Owns the directory while it exists (a lock file says so):
 *   DIR/data         the cluster; made by initdb on first start, whole or not at all
 *   DIR/run          its unix socket, mode 0700 (a private directory in /tmp when the path is too
 *                    long for a socket); there is no TCP port
 *   DIR/postgres.log what the server says; DIR/lock
 * The server runs as an unprivileged user, never as root, in a session of its own. It outlives a
 * killed daemon: the next cluster_start on DIR takes it over, or ends what is left of it and starts
 * anew. It is restarted whenever it ends unasked, with back-off.
 * Access: whoever may enter the socket directory (that user, and root) is trusted. */
#pragma once
#include "base/error.h"
#include "base/loop.h"
#include <stdbool.h>
#include <sys/types.h>

struct cluster;
struct cluster_options {
    struct loop *loop;
    const char *dir;     /* absolute; made when missing; its parents must be open to the user */
    const char *user;    /* when we are root: whom the server runs as; NULL: "postgres" */
    const char *bin_dir; /* of postgres and initdb; NULL: found */
    /* The server ended (up false) or is back (up true). May be NULL. */
    void (*on_state)(void *arg, bool up, const char *text);
    void *on_state_arg;
};
/* conninfo is a loan until cluster_destroy. */
typedef void (*cluster_started)(void *arg, enum status st, const struct error *err,
                                const char *conninfo);

/* Never NULL; done runs exactly once, later. After a failure only destroy is left. */
struct cluster *cluster_start(const struct cluster_options *options, cluster_started done,
                              void *arg);
/* Ends the server (fast, then at once, then killed); done runs once, later. */
void cluster_stop(struct cluster *cluster, void (*done)(void *arg), void *arg);
/* Without cluster_stop the server is left running, for the next start to take over. Callbacks that
 * have not run yet never do. NULL is fine. */
void cluster_destroy(struct cluster *cluster);
pid_t cluster_pid(const struct cluster *cluster);    /* of the server; 0: it is down */
bool cluster_adopted(const struct cluster *cluster); /* it was running before we came */
