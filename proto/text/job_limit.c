#include "proto/text/job_limit.h"
#include "base/mem.h"
#include "base/text.h"
#include "proto/pb.h"
#include "proto/text/job_check.h"
#include <string.h>

#define DAY_MS  ((int64_t)86400000)
#define YEARS_S ((int64_t)10 * 366 * 86400)

static const struct job_limit_number numbers[] = {
    {&pb__job_spec__descriptor, "priority", -1000, 1000},
    {&pb__job_spec__descriptor, "time_limit_s", 0, YEARS_S},
    {&pb__job_spec__descriptor, "time_estimate_s", 0, YEARS_S},
    {&pb__job_spec__descriptor, "grace_ms", 0, DAY_MS},
    {&pb__job_spec__descriptor, "grace_ms_max", 0, DAY_MS},
    {&pb__role__descriptor, "workers", 1, JOB_CHECK_WORKERS_MAX},
    {&pb__role__descriptor, "workers_min", 0, JOB_CHECK_WORKERS_MAX},
    {&pb__role__descriptor, "workers_max", 0, JOB_CHECK_WORKERS_MAX},
    {&pb__resources__descriptor, "devices", 1, 1024},
    {&pb__resources__descriptor, "cpus", 0, 4096},
    {&pb__resources__descriptor, "memory_mib", 0, 1 << 30},
    {&pb__restart__descriptor, "budget", 0, 1000000},
    {&pb__restart__descriptor, "backoff_ms", 0, DAY_MS},
    {&pb__restart__descriptor, "backoff_ms_max", 0, DAY_MS},
    {&pb__phases__descriptor, "start_ms", 1, DAY_MS},
    {&pb__phases__descriptor, "first_step_ms", 0, 30 * DAY_MS},
    {&pb__phases__descriptor, "step_ms", 0, 30 * DAY_MS},
    {&pb__phases__descriptor, "save_ms", 1, 30 * DAY_MS},
    {&pb__success__descriptor, "target_samples", 0, INT64_MAX},
    {&pb__checkpoint_policy__descriptor, "every_steps", 0, (int64_t)1 << 53},
    {&pb__checkpoint_policy__descriptor, "every_s", 0, YEARS_S},
    {&pb__checkpoint_policy__descriptor, "keep", 1, 10000},
    {&pb__checkpoint_policy__descriptor, "keep_every_steps", 0, (int64_t)1 << 53},
    {&pb__checkpoint_policy__descriptor, "keep_ttl_s", 0, YEARS_S},
    {&pb__checkpoint_policy__descriptor, "keep_best", 0, 10000},
};

static const struct job_limit_text texts[] = {
    {&pb__job_spec__descriptor, "name", JOB_LIMIT_LINE, 1, JOB_CHECK_NAME_MAX},
    {&pb__job_spec__descriptor, "project", JOB_LIMIT_SLUG, 1, 63},
    {&pb__role__descriptor, "name", JOB_LIMIT_WORD, 1, 63},
    {&pb__role__descriptor, "command", JOB_LIMIT_ANY, 0, JOB_CHECK_STRING_MAX},
    {&pb__role__descriptor, "workdir", JOB_LIMIT_PATH, 0, 4095},
    {&pb__string_pair__descriptor, "name", JOB_LIMIT_ANY, 0, JOB_CHECK_STRING_MAX},
    {&pb__string_pair__descriptor, "value", JOB_LIMIT_ANY, 0, JOB_CHECK_STRING_MAX},
    {&pb__resources__descriptor, "device", JOB_LIMIT_SLUG, 1, 31},
    {&pb__code__descriptor, "path", JOB_LIMIT_LINE, 0, 4095},
    {&pb__code__descriptor, "digest", JOB_LIMIT_HEX, 0, 64},
    {&pb__checkpoint_policy__descriptor, "vault", JOB_LIMIT_SLUG, 0, 63},
    {&pb__checkpoint_policy__descriptor, "keep_metric", JOB_LIMIT_LINE, 0, 255},
    {&pb__checkpoint_watch__descriptor, "pattern", JOB_LIMIT_PATH, 1, 1024},
    {&pb__checkpoint_watch__descriptor, "marker", JOB_LIMIT_PATH, 1, 255},
};

const struct job_limit_number *job_limit_number(const ProtobufCMessageDescriptor *type,
                                                const char *field)
{
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        if (numbers[i].type == type && strcmp(numbers[i].field, field) == 0)
            return &numbers[i];
    return NULL;
}

/* A field is an entry of its type's array: no two types share one. */
const struct job_limit_number *job_limit_number_of(const ProtobufCFieldDescriptor *field)
{
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        if (protobuf_c_message_descriptor_get_field_by_name(numbers[i].type, numbers[i].field) ==
            field)
            return &numbers[i];
    return NULL;
}

const struct job_limit_text *job_limit_text(const ProtobufCMessageDescriptor *type,
                                            const char *field)
{
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        if (texts[i].type == type && strcmp(texts[i].field, field) == 0)
            return &texts[i];
    return NULL;
}

/* Controls of ASCII and of Latin-1 (U+0080..U+009F), line and paragraph separators, and the marks
 * that turn the direction of what stands behind them. */
static bool has_control(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f || (c == 0xc2 && (unsigned char)text[i + 1] < 0xa0))
            return true;
        if (c != 0xe2 || (unsigned char)text[i + 1] != 0x80)
            continue;
        unsigned char last = (unsigned char)text[i + 2];
        if (last >= 0xa8 && last <= 0xae)
            return true;
    }
    return false;
}

static bool has_parent_part(const char *path)
{
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return true;
    }
    return false;
}

static bool consists_of(const char *text, size_t len, const char *more)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && !strchr(more, c))
            return false;
    }
    return true;
}

static const char *kind_problem(enum job_limit_kind kind, const char *text, size_t len)
{
    switch (kind) {
    case JOB_LIMIT_ANY:
        return NULL;
    case JOB_LIMIT_LINE:
    case JOB_LIMIT_PATH:
        if (has_control(text, len))
            return "holds a control character";
        return kind == JOB_LIMIT_PATH && has_parent_part(text) ? "must not contain '..'" : NULL;
    case JOB_LIMIT_SLUG:
        return consists_of(text, len, "._-") && text[0] != '.'
                   ? NULL
                   : "may hold only a-z, 0-9, '.', '_' and '-', and no dot first";
    case JOB_LIMIT_WORD:
        return consists_of(text, len, "-") ? NULL : "may hold only a-z, 0-9 and '-'";
    case JOB_LIMIT_HEX:
        return len == 64 && strspn(text, "0123456789abcdef") == len
                   ? NULL
                   : "is no SHA-256: 64 digits of 0-9 and a-f";
    }
    return NULL;
}

const char *job_limit_text_problem(const struct job_limit_text *row, const char *text, size_t len)
{
    if (len < row->min)
        return "is empty";
    if (len == 0)
        return NULL;
    if (!text_is_utf8(text, len))
        return "is not valid UTF-8";
    return kind_problem(row->kind, text, len);
}
