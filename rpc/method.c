#include "rpc/method.h"
#include <stdio.h>
#include <string.h>

void rpc_method_path(const ProtobufCServiceDescriptor *service,
                     const ProtobufCMethodDescriptor *method, char out[RPC_METHOD_PATH_MAX])
{
    snprintf(out, RPC_METHOD_PATH_MAX, "/%s/%s", service->name, method->name);
}

const ProtobufCMethodDescriptor *rpc_method_find(const ProtobufCServiceDescriptor *service,
                                                 const char *name)
{
    return protobuf_c_service_descriptor_get_method_by_name(service, name);
}

const struct rpc_method *rpc_method_row(const struct rpc_service *service, const char *name)
{
    for (const struct rpc_method *row = service->methods; row && row->name; row++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

static enum status check_row(const struct rpc_service *service, const struct rpc_method *row,
                             struct error *err)
{
    const char *name = service->descriptor->name;

    if (!rpc_method_find(service->descriptor, row->name))
        return error_set(err, STATUS_INVALID, "%s has no method %s", name, row->name);
    if (!row->handler || row->roles == IDENTITY_NONE)
        return error_set(err, STATUS_INVALID, "%s.%s has no handler or no role", name, row->name);
    if (rpc_method_row(service, row->name) != row)
        return error_set(err, STATUS_INVALID, "%s.%s is there twice", name, row->name);
    return STATUS_OK;
}

enum status rpc_method_check(const struct rpc_service *service, struct error *err)
{
    const ProtobufCServiceDescriptor *descriptor = service->descriptor;
    enum status st;

    for (unsigned i = 0; i < descriptor->n_methods; i++)
        if (!rpc_method_row(service, descriptor->methods[i].name))
            return error_set(err, STATUS_INVALID, "%s.%s has no handler", descriptor->name,
                             descriptor->methods[i].name);
    for (const struct rpc_method *row = service->methods; row && row->name; row++)
        if ((st = check_row(service, row, err)) != STATUS_OK)
            return st;
    return STATUS_OK;
}
