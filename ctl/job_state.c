#include "ctl/job_state.h"
#include "base/text.h"
#include "ctl/output.h"
#include "proto/text/problem_list.h"
#include "proto/text/text_format.h"
#include "proto/text/text_scalar.h"

bool job_state_ended(Pb__Job__State state)
{
    return state == PB__JOB__STATE__SUCCEEDED || state == PB__JOB__STATE__FAILED ||
           state == PB__JOB__STATE__CANCELLED;
}

const char *job_state_name(Pb__Job__State state)
{
    return enum_name(&pb__job__state__descriptor, (int)state);
}

const char *job_state_reason(const Pb__Job *job)
{
    return job->reason && job->reason->has_code
               ? enum_name(&pb__reason__code__descriptor, (int)job->reason->code)
               : "";
}

const char *job_state_text(const Pb__Job *job)
{
    return job->reason && job->reason->text ? job->reason->text : "";
}

const char *job_state_job_name(const Pb__Job *job)
{
    return job->spec && job->spec->name ? job->spec->name : "";
}

uint64_t job_state_workers(const Pb__Job *job)
{
    uint64_t sum = 0;
    for (size_t i = 0; job->spec && i < job->spec->n_roles; i++)
        sum += job->spec->roles[i]->workers;
    return sum;
}

bool job_state_parse(const char *word, Pb__Job__State *out)
{
    const ProtobufCEnumDescriptor *type = &pb__job__state__descriptor;
    const ProtobufCEnumValue *value = text_scalar_enum(type, word);
    const char *names[32];
    char list[200];
    if (value && value->value != 0) {
        *out = (Pb__Job__State)value->value;
        return true;
    }
    problem_list_names(names, text_scalar_enum_names(type, names, 32), list, sizeof list);
    output_error("state '%s' is none of %s", word, list);
    return false;
}
