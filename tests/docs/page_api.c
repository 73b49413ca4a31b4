/* page_api.c - docs/reference/api.md, from the service descriptors and the daemon's method table.
 */
#include "base/mem.h"
#include "daemon/serve.h"
#include "proto/pb.h"
#include "rpc/identity.h"
#include "rpc/method.h"
#include "tests/docs/page.h"
#include <assert.h>
#include <string.h>

static const char *kind_words(enum rpc_kind kind)
{
    switch (kind) {
    case RPC_UNARY:
        return "one request, one reply";
    case RPC_SERVER_STREAM:
        return "one request, a stream of replies";
    case RPC_CLIENT_STREAM:
        return "a stream of requests, one reply";
    case RPC_BIDI:
        return "streams both ways";
    }
    return "";
}

static void add_roles(unsigned roles, struct text *out)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{IDENTITY_ADMIN, "admin"},
                 {IDENTITY_SUBMITTER, "submitter"},
                 {IDENTITY_VIEWER, "viewer"},
                 {IDENTITY_AGENT, "agent"},
                 {IDENTITY_DAEMON, "daemon"}};
    bool any = false;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (!(roles & names[i].bit))
            continue;
        text_addf(out, "%s%s", any ? ", " : "", names[i].name);
        any = true;
    }
}

static void add_service(const struct rpc_service *service, struct text *out)
{
    const ProtobufCServiceDescriptor *type = service->descriptor;
    text_addf(out, "\n## %s\n\n| method | kind | who may call | request | reply |\n", type->name);
    text_add(out, "|---|---|---|---|---|\n");
    for (unsigned i = 0; i < type->n_methods; i++) {
        const ProtobufCMethodDescriptor *method = &type->methods[i];
        const struct rpc_method *row = rpc_method_row(service, method->name);
        assert(row);
        text_addf(out, "| `%s` | %s | ", method->name, kind_words(row->kind));
        add_roles(row->roles, out);
        text_addf(out, " | %s | %s |\n", method->input->short_name, method->output->short_name);
    }
}

static void add_message(const ProtobufCMessageDescriptor *type, const char *source,
                        struct text *out)
{
    text_addf(out, "\n### %s\n\n", type->short_name);
    if (type->n_fields == 0) {
        text_add(out, "Empty.\n");
        return;
    }
    SCOPED_TEXT char *head = mem_printf("message %s", type->short_name);
    text_add(out, "| field | number | type | meaning |\n|---|---|---|---|\n");
    for (unsigned i = 0; i < type->n_fields; i++) {
        text_addf(out, "| `%s` | %u | ", type->fields[i].name, type->fields[i].id);
        page_type(&type->fields[i], out);
        text_add(out, " | ");
        page_comment(source, head, type->fields[i].name, out);
        text_add(out, " |\n");
    }
}

static bool is_first(const ProtobufCServiceDescriptor *type, unsigned at,
                     const ProtobufCMessageDescriptor *message, bool output)
{
    for (unsigned i = 0; i <= at; i++) {
        if (type->methods[i].input == message && (i < at || output))
            return false;
        if (type->methods[i].output == message && i < at)
            return false;
    }
    return true;
}

static void add_messages(const ProtobufCServiceDescriptor *type, const char *source,
                         struct text *out)
{
    for (unsigned i = 0; i < type->n_methods; i++) {
        const ProtobufCMethodDescriptor *method = &type->methods[i];
        if (is_first(type, i, method->input, false))
            add_message(method->input, source, out);
        if (is_first(type, i, method->output, true))
            add_message(method->output, source, out);
    }
}

void page_api(const struct page_sources *sources, struct text *out)
{
    struct serve *serve = serve_create(&(struct serve_options){0});
    size_t count;
    const struct rpc_service *services = serve_services(serve, &count);
    text_add(out, "# gRPC\n\nPrinted from `proto/rondo/v1/*.proto` and the method table of "
                  "`daemon/serve.c` by `scripts/docs.sh`. Transport:\nmTLS; who is calling is the "
                  "URI SAN of the certificate. Every call that changes something carries a "
                  "`request_id`:\nthe same id again gives the same answer and changes nothing. A "
                  "refusal is a gRPC status with one line of text.\n");
    for (size_t i = 0; i < count; i++)
        add_service(&services[i], out);
    text_add(out, "\n## Messages of rondo.v1.Control\n");
    add_messages(&pb__control__descriptor, sources->control, out);
    serve_destroy(serve);
}
