/* cluster_proc.h - processes of a cluster, found in /proc by their working directory.
 *
 * Loop thread, reads a few small files. A server and all its children work in the data directory;
 * nothing else of that user does. */
#pragma once
#include "daemon/cluster_dir.h"
#include <sys/types.h>

/* The server named in postmaster.pid, if it is alive and really this cluster's with these sockets;
 * else 0. */
pid_t cluster_proc_server(const struct cluster_dir *dir);
/* True once that server takes connections. */
bool cluster_proc_is_ready(const struct cluster_dir *dir, pid_t server);
/* Sends a signal to every process that works in the data directory; returns how many there were. */
size_t cluster_proc_kill(const struct cluster_dir *dir, int signal);
void cluster_proc_forget(const struct cluster_dir *dir); /* removes what a dead server left */
