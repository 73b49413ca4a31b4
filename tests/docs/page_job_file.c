/* page_job_file.c - docs/reference/job-file.md, from the descriptors below JobSpec and their
 * limits.
 */
#include "base/mem.h"
#include "proto/pb.h"
#include "proto/text/enum.h"
#include "proto/text/job_limit.h"
#include "proto/text/text_field.h"
#include "proto/text/text_unit.h"
#include "tests/docs/page.h"
#include <inttypes.h>
#include <string.h>

enum { TYPES_MAX = 32 };

static void add_default(const ProtobufCFieldDescriptor *field, struct text *out)
{
    const void *value = field->default_value;
    if (!value)
        return;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        text_addf(out, "`%s`", (const char *)value);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        text_addf(out, "`%s`", enum_name(field->descriptor, *(const int *)value));
        break;
    case PROTOBUF_C_TYPE_BOOL:
        text_add(out, *(const protobuf_c_boolean *)value ? "`true`" : "`false`");
        break;
    case PROTOBUF_C_TYPE_INT32:
        text_addf(out, "`%" PRId32 "`", *(const int32_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT32:
        text_addf(out, "`%" PRIu32 "`", *(const uint32_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT64:
        text_addf(out, "`%" PRIu64 "`", *(const uint64_t *)value);
        break;
    default:
        text_addf(out, "`%" PRId64 "`", *(const int64_t *)value);
    }
}

static const char *kind_words(enum job_limit_kind kind)
{
    switch (kind) {
    case JOB_LIMIT_ANY:
        return "UTF-8";
    case JOB_LIMIT_LINE:
        return "no control characters";
    case JOB_LIMIT_PATH:
        return "no `..`";
    case JOB_LIMIT_SLUG:
        return "`a-z 0-9 . _ -`";
    case JOB_LIMIT_WORD:
        return "`a-z 0-9 -`";
    case JOB_LIMIT_HEX:
        return "64 hex digits";
    }
    return "";
}

static void add_range(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                      struct text *out)
{
    const struct job_limit_number *number = job_limit_number(type, field->name);
    const struct job_limit_text *words = job_limit_text(type, field->name);
    if (number && number->max == INT64_MAX)
        text_addf(out, "from %" PRId64, number->min);
    else if (number)
        text_addf(out, "%" PRId64 " to %" PRId64, number->min, number->max);
    if (words)
        text_addf(out, "%zu to %zu bytes, %s", words->min, words->max, kind_words(words->kind));
}

static const char *unit_words(enum text_unit unit)
{
    switch (unit) {
    case TEXT_UNIT_NONE:
        return "";
    case TEXT_UNIT_MS:
        return " of ms, or a duration";
    case TEXT_UNIT_S:
        return " of s, or a duration";
    case TEXT_UNIT_MIB:
        return " of MiB, or a size";
    }
    return "";
}

static void add_type(const ProtobufCFieldDescriptor *field, struct text *out)
{
    if (text_field_is_pair(field))
        text_add(out, "mapping of text to text");
    else
        page_type(field, out);
    text_add(out, unit_words(text_unit_of(field->name)));
}

static void add_message(const ProtobufCMessageDescriptor *type, const char *where,
                        const char *source, struct text *out)
{
    text_addf(out, "\n## %s%s%s%s\n\n", type->short_name, *where ? " (`" : "", where,
              *where ? "`)" : "");
    SCOPED_TEXT char *head = mem_printf("message %s", type->short_name);
    text_add(out, "| key | value | default | allowed | meaning |\n|---|---|---|---|---|\n");
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        text_addf(out, "| `%s` | ", field->name);
        add_type(field, out);
        text_add(out, " | ");
        add_default(field, out);
        text_add(out, " | ");
        add_range(type, field, out);
        text_add(out, " | ");
        page_comment(source, head, field->name, out);
        text_add(out, " |\n");
    }
}

/* Messages below the type, each once, in the order in which a reader meets them. */
static void walk(const ProtobufCMessageDescriptor *type, const char *where, const char *source,
                 struct text *out)
{
    add_message(type, where, source, out);
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (field->type != PROTOBUF_C_TYPE_MESSAGE || text_field_is_pair(field))
            continue;
        SCOPED_TEXT char *below = mem_printf("%s%s%s%s", where, *where ? "." : "", field->name,
                                             field->label == PROTOBUF_C_LABEL_REPEATED ? ".N" : "");
        walk(field->descriptor, below, source, out);
    }
}

void page_job_file(const struct page_sources *sources, struct text *out)
{
    text_add(out,
             "# The job file\n\nPrinted from `proto/rondo/v1/job.proto` and the rows of "
             "`proto/text/job_limit.c` by `scripts/docs.sh`.\n\nA YAML mapping with the keys of "
             "JobSpec. All problems of a file are reported in one run, each with line and "
             "column;\nnothing is submitted when there is one. `rondoctl submit --set "
             "roles.0.workers=4` changes a value after reading.\nExamples: "
             "[charlm](../../examples/charlm/job.yaml), "
             "[torchrun_ddp](../../examples/torchrun_ddp/job.yaml), "
             "[c_counter](../../examples/c_counter/job.yaml).\n");
    text_addf(out, "\nA duration is %s;\na size is %s.\n", text_unit_examples(TEXT_UNIT_MS),
              text_unit_examples(TEXT_UNIT_MIB));
    walk(&pb__job_spec__descriptor, "", sources->job, out);
}
