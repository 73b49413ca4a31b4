#include "ctl/job_change.h"
#include "base/mem.h"
#include "ctl/job_arg.h"
#include "ctl/job_state.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include <inttypes.h>
#include <stdio.h>

static int look(struct connect *connect, int64_t id, Pb__ShowJobReply **out)
{
    Pb__ShowJobRequest request = PB__SHOW_JOB_REQUEST__INIT;
    request.has_job = 1;
    request.job = id;
    return connect_ask(connect, "ShowJob", &request.base, (ProtobufCMessage **)out);
}

/* The change is not possible: scripts repeat themselves, and want to know how the job stands. */
static int refused(struct connect *connect, enum output_format format,
                   const struct job_change *change, int64_t id, const struct error *err)
{
    Pb__ShowJobReply *show;
    int code = look(connect, id, &show);
    if (code != VERB_OK)
        return code;
    bool so = change->is_so && show->job && change->is_so(change->arg, show->job);
    if (show->job && format != OUTPUT_TABLE) {
        Pb__JobReply reply = PB__JOB_REPLY__INIT;
        reply.job = show->job;
        output_message(format, &reply.base);
    } else if (so) {
        printf("job %" PRId64 " is %s already\n", id, job_state_name(show->job->state));
    }
    protobuf_c_message_free_unpacked(&show->base, NULL);
    return so ? VERB_OK : connect_fail(connect, err->code, err->text);
}

static int change_one(struct connect *connect, enum output_format format,
                      const struct job_change *change, int64_t id)
{
    char request_id[CONNECT_ID_SIZE];
    ProtobufCMessage *message;
    struct error err = {0};
    connect_request_id(connect, request_id);
    const ProtobufCMessage *request = change->request(change->arg, request_id, id);
    enum status st = connect_call(connect, change->method, request, &message, &err);
    if (st == STATUS_PRECONDITION)
        return refused(connect, format, change, id, &err);
    if (st != STATUS_OK)
        return connect_fail(connect, st, err.text);
    const Pb__JobReply *reply = (const Pb__JobReply *)message;
    if (format != OUTPUT_TABLE)
        output_message(format, message);
    else
        printf("job %" PRId64 " is %s, now %s\n", id, change->done,
               reply->job ? job_state_name(reply->job->state) : "unknown");
    protobuf_c_message_free_unpacked(message, NULL);
    return VERB_OK;
}

int job_change_run(struct connect *connect, const char *output, const struct job_change *change,
                   int argc, char **argv, int64_t **ids, size_t *count)
{
    enum output_format format;
    int worst = VERB_OK;
    *ids = mem_array((size_t)argc + 1, sizeof(int64_t));
    *count = 0;
    if (!output_parse(output, &format))
        return VERB_USAGE;
    for (int i = 0; i < argc; i++) {
        int64_t id;
        int code = job_arg_find(connect, argv[i], false, &id);
        if (code == VERB_OK)
            code = change_one(connect, format, change, id);
        if (code == VERB_OK)
            (*ids)[(*count)++] = id;
        worst = code > worst ? code : worst;
        if (code == VERB_UNREACHED)
            break;
    }
    fflush(stdout);
    return worst;
}
