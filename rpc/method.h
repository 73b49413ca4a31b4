/* method.h - methods of a service: paths, and the check that a table has a row for each.
 *
 * Any thread; pure. */
#pragma once
#include "base/error.h"
#include "rpc/server.h"

#define RPC_METHOD_PATH_MAX 256

/* "/rondo.v1.Control/Submit" */
void rpc_method_path(const ProtobufCServiceDescriptor *service,
                     const ProtobufCMethodDescriptor *method, char out[RPC_METHOD_PATH_MAX]);
/* NULL when the service has no such method. */
const ProtobufCMethodDescriptor *rpc_method_find(const ProtobufCServiceDescriptor *service,
                                                 const char *name);
/* The row of the method, or NULL. */
const struct rpc_method *rpc_method_row(const struct rpc_service *service, const char *name);
/* STATUS_INVALID names the method without a row, the row without a method, the row without a
 * handler or without a role, and a row that is there twice. */
enum status rpc_method_check(const struct rpc_service *service, struct error *err) MUST_CHECK;
