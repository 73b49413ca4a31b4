/* sock.h - the seam to workers' control sockets (worker.proto): one listening socket a worker.
 *
 * Two implementations: sock_uv.c (unix sockets on the loop) and the simulator's. Loop thread only;
 * events come later, never from inside a call; none after sock_close. Asks are bounded (64 KiB), a
 * worker has at most 16 connections and 64 asks in 250 ms (more wait in its socket), a bad message
 * ends its connection. */
#pragma once
#include "base/error.h"
#include "proto/pb.h"
#include <stdint.h>

struct socks;
struct sock;

struct sock_events {
    void (*opened)(void *arg, enum status st, const struct error *err);    /* once */
    void (*ask)(void *arg, uint64_t connection, const Pb__WorkerAsk *ask); /* loan */
};
struct sock_ops {
    /* Makes the socket at path (a stale one is replaced), mode 0600 of uid:gid (-1: leave). */
    struct sock *(*open)(struct socks *socks, const char *path, int64_t uid, int64_t gid,
                         const struct sock_events *events, void *arg);
    /* A connection that is gone by now is fine. */
    void (*answer)(struct sock *sock, uint64_t connection, const Pb__WorkerAnswer *answer);
    void (*close)(struct sock *sock);
    void (*destroy)(struct socks *socks); /* after every sock is closed, or at a crash: drops all */
};
struct socks {
    const struct sock_ops *ops;
};
struct sock {
    const struct sock_ops *ops;
};

struct loop;
/* Needs loop_uv. spares: how many sockets are kept bound in spare_dir, for opens to come; 0: none.
 */
struct socks *sock_uv_create(struct loop *loop, const char *spare_dir, uint32_t spares);
