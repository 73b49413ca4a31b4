#include "rpc/runtime.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include <assert.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Static_assert((int)STATUS_INVALID == (int)GRPC_STATUS_INVALID_ARGUMENT, "same numbers as gRPC");
_Static_assert((int)STATUS_DEADLINE == (int)GRPC_STATUS_DEADLINE_EXCEEDED, "same numbers as gRPC");
_Static_assert((int)STATUS_EXISTS == (int)GRPC_STATUS_ALREADY_EXISTS, "same numbers as gRPC");
_Static_assert((int)STATUS_DENIED == (int)GRPC_STATUS_PERMISSION_DENIED, "same numbers as gRPC");
_Static_assert((int)STATUS_ABORTED == (int)GRPC_STATUS_ABORTED, "same numbers as gRPC");
_Static_assert((int)STATUS_UNAVAILABLE == (int)GRPC_STATUS_UNAVAILABLE, "same numbers as gRPC");
_Static_assert((int)STATUS_UNAUTHENTICATED == (int)GRPC_STATUS_UNAUTHENTICATED, "same as gRPC");

#define LOG_LINES_PER_S 1

/* A pre-shared-key suite without a key: TLS 1.2 finds nothing to agree on, whatever the
 * certificate, while the suites of TLS 1.3 are chosen elsewhere. gRPC 1.51 has no C call for the
 * least version. */
#define NO_TLS12_SUITES "PSK-AES256-GCM-SHA384"

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t log_second;
static int log_lines, log_dropped;

/* Admits so many lines a second; *dropped says how many were left out since the last one. */
static bool log_admit(int *dropped)
{
    struct timespec now;
    bool admitted;

    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&log_lock);
    if (now.tv_sec != log_second) {
        log_second = now.tv_sec;
        log_lines = 0;
    }
    admitted = ++log_lines <= LOG_LINES_PER_S;
    *dropped = log_dropped;
    log_dropped = admitted ? 0 : log_dropped + 1;
    pthread_mutex_unlock(&log_lock);
    return admitted;
}

static void log_line(gpr_log_func_args *args)
{
    int dropped = 0;

    if (strstr(args->message, "assertion failed")) {
        log_error("rpc.grpc", log_str("text", args->message), log_str("file", args->file),
                  log_int("line", args->line));
        return;
    }
    if (args->severity != GPR_LOG_SEVERITY_ERROR) {
        log_debug("rpc.grpc", log_str("text", args->message));
        return;
    }
    if (!log_admit(&dropped))
        return;
    log_warn(strcasestr(args->message, "handshake") ? "rpc.handshake" : "rpc.grpc",
             log_str("text", args->message), log_int("dropped", dropped));
}

static void runtime_setup(void)
{
    gpr_set_log_function(log_line);
    if (!getenv("GRPC_VERBOSITY"))
        gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    setenv("GRPC_SSL_CIPHER_SUITES", NO_TLS12_SUITES, 1);
}

void rpc_runtime_acquire(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, runtime_setup);
    grpc_init();
}

void rpc_runtime_release(void)
{
    grpc_shutdown_blocking();
}

static grpc_arg *arg_next(struct rpc_args *args, const char *key, grpc_arg_type type)
{
    if (args->count == COUNT_OF(args->items))
        abort(); /* a table of ours is too small */
    grpc_arg *arg = &args->items[args->count++];
    arg->type = type;
    arg->key = (char *)(uintptr_t)key;
    return arg;
}

void rpc_args_int(struct rpc_args *args, const char *key, int value)
{
    arg_next(args, key, GRPC_ARG_INTEGER)->value.integer = value;
}

void rpc_args_text(struct rpc_args *args, const char *key, const char *value)
{
    arg_next(args, key, GRPC_ARG_STRING)->value.string = (char *)(uintptr_t)value;
}

void rpc_args_quota(struct rpc_args *args, grpc_resource_quota *quota)
{
    grpc_arg *arg = arg_next(args, GRPC_ARG_RESOURCE_QUOTA, GRPC_ARG_POINTER);

    arg->value.pointer.p = quota;
    arg->value.pointer.vtable = grpc_resource_quota_arg_vtable();
}

void rpc_args_common(struct rpc_args *args, uint32_t message_bytes_max)
{
    size_t bytes = message_bytes_max ? message_bytes_max : RPC_MESSAGE_BYTES_DEFAULT;
    int limit = bytes > INT32_MAX ? INT32_MAX : (int)bytes;

    rpc_args_int(args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, limit);
    rpc_args_int(args, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
    rpc_args_int(args, GRPC_ARG_HTTP2_BDP_PROBE, 0);
    rpc_args_int(args, GRPC_ARG_KEEPALIVE_TIME_MS, RPC_KEEPALIVE_MS);
    rpc_args_int(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, RPC_KEEPALIVE_TIMEOUT_MS);
    rpc_args_int(args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    rpc_args_int(args, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

grpc_channel_args rpc_args_get(struct rpc_args *args)
{
    return (grpc_channel_args){args->count, args->items};
}
