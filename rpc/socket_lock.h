/* socket_lock.h - one server at a unix socket path: a lock file beside it.
 *
 * Any thread. gRPC replaces a socket file that is there, even one in use, and removes the file of
 * whoever came after: the lock prevents both. */
#pragma once
#include "base/error.h"

struct rpc_socket_lock;

/* STATUS_EXISTS: another server holds the path. */
enum status rpc_socket_lock_take(const char *socket_path, struct rpc_socket_lock **out,
                                 struct error *err) MUST_CHECK;
void rpc_socket_lock_release(struct rpc_socket_lock *lock); /* NULL is fine */
