#include "ctl/job_change.h"
#include "base/mem.h"
#include "ctl/job_arg.h"
#include "ctl/job_state.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include <inttypes.h>
#include <stdio.h>

static int change_one(struct connect *connect, enum output_format format,
                      const struct job_change *change, int64_t id)
{
    char request_id[CONNECT_ID_SIZE];
    Pb__JobReply *reply;
    connect_request_id(connect, request_id);
    const ProtobufCMessage *request = change->request(change->arg, request_id, id);
    int code = connect_ask(connect, change->method, request, (ProtobufCMessage **)&reply);
    if (code != VERB_OK)
        return code;
    if (format != OUTPUT_TABLE)
        output_message(format, &reply->base);
    else
        printf("job %" PRId64 " is %s, now %s\n", id, change->done,
               reply->job ? job_state_name(reply->job->state) : "unknown");
    protobuf_c_message_free_unpacked(&reply->base, NULL);
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
