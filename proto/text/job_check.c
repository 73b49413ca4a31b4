#include "proto/text/job_check.h"
#include "base/map.h"
#include "base/mem.h"
#include "proto/text/job_limit.h"
#include "proto/text/problem_list.h"
#include "proto/text/text_field.h"
#include "proto/text/text_format.h"
#include "proto/text/text_scalar.h"
#include <stdio.h>
#include <string.h>

enum { PATH_MAX_BYTES = 160 };

static void bad(struct problem_list *list, const char *path, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
static void bad(struct problem_list *list, const char *path, const char *fmt, ...)
{
    char what[700];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    struct problem_list named = {path, false, list->out, list->count};
    problem_list_add(&named, NULL, "%s", what);
    list->count = named.count;
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* --- What holds for a field by itself: ranges, enum values, texts. */

static void check_number(struct problem_list *list, const char *path,
                         const struct job_limit_number *row, int64_t value, const char *digits)
{
    if (value < row->min || value > row->max)
        bad(list, path, "%s is out of range %lld..%lld, nearest %lld", digits, (long long)row->min,
            (long long)row->max, (long long)(value < row->min ? row->min : row->max));
}

static void check_enum(struct problem_list *list, const char *path,
                       const ProtobufCEnumDescriptor *type, int value)
{
    const char *names[32];
    char allowed[300];
    if (value != 0 && protobuf_c_enum_descriptor_get_value(type, value))
        return;
    problem_list_names(names, text_scalar_enum_names(type, names, COUNT_OF(names)), allowed,
                       sizeof allowed);
    bad(list, path, "%s is none of %s", enum_name(type, value), allowed);
}

static void check_text(struct problem_list *list, const char *path,
                       const struct job_limit_text *row, const char *text)
{
    char quote[PROBLEM_QUOTE_SIZE];
    size_t len = strlen(or_empty(text));
    const char *problem = job_limit_text_problem(row, or_empty(text), len);
    if (len > row->max)
        bad(list, path, "%zu bytes are too long; at most %zu", len, row->max);
    else if (problem && len == 0)
        bad(list, path, "%s; 1..%zu bytes are needed", problem, row->max);
    else if (problem)
        bad(list, path, "'%s' %s", problem_list_quote(text, len, quote), problem);
}

static void check_message(struct problem_list *list, const char *path,
                          const ProtobufCMessage *message);

static void check_element(struct problem_list *list, const char *path,
                          const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                          const void *element)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    const struct job_limit_number *number = job_limit_number(type, field->name);
    const struct job_limit_text *text = job_limit_text(type, field->name);
    char digits[24];
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessage *const *sub = element;
        if (*sub)
            check_message(list, path, *sub);
    } else if (field->type == PROTOBUF_C_TYPE_ENUM) {
        check_enum(list, path, field->descriptor, *(const int *)element);
    } else if (text) {
        check_text(list, path, text, *(const char *const *)element);
    } else if (number && field->type == PROTOBUF_C_TYPE_UINT32) {
        uint32_t value = *(const uint32_t *)element;
        snprintf(digits, sizeof digits, "%u", value);
        check_number(list, path, number, value, digits);
    } else if (number && field->type == PROTOBUF_C_TYPE_INT32) {
        int32_t value = *(const int32_t *)element;
        snprintf(digits, sizeof digits, "%d", value);
        check_number(list, path, number, value, digits);
    } else if (number) { /* 64 bits; an unsigned value past INT64_MAX is just as much too large */
        uint64_t bits = *(const uint64_t *)element;
        bool wraps = field->type == PROTOBUF_C_TYPE_UINT64 && bits > INT64_MAX;
        snprintf(digits, sizeof digits, wraps ? "%llu" : "%lld", (unsigned long long)bits);
        check_number(list, path, number, wraps ? INT64_MAX : (int64_t)bits, digits);
    }
}

static void check_message(struct problem_list *list, const char *path,
                          const ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
        size_t count = text_field_count(message, field);
        for (size_t k = 0; k < count && list->count < PROBLEM_LIST_MAX; k++) {
            char deeper[PATH_MAX_BYTES], index[24] = "";
            if (repeated)
                snprintf(index, sizeof index, ".%zu", k);
            snprintf(deeper, sizeof deeper, "%s%s%s%s", path, *path ? "." : "", field->name, index);
            check_element(list, deeper, message, field, text_field_element(message, field, k));
        }
    }
}

/* --- What holds between fields. */

struct pair_rule {
    const char *what;
    size_t count_max, name_max, value_max, total_max;
    const char *(*problem)(const char *name, const char *value); /* with the name; NULL: none */
};

/* What each worker is told of its place: another value would break its gang. */
static bool is_of_agent(const char *name)
{
    static const char *const names[] = {"RANK",        "LOCAL_RANK",       "WORLD_SIZE",
                                        "GROUP_RANK",  "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
                                        "ROLE_RANK",   "ROLE_WORLD_SIZE",  "ROLE_NAME",
                                        "MASTER_ADDR", "MASTER_PORT"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return strncmp(name, "TORCHELASTIC_", 13) == 0;
}

/* What the agent would refuse at each start, and what it sets itself. */
static const char *variable_problem(const char *name, const char *value)
{
    static const char more[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    (void)value;
    if (strspn(name, more) != strlen(name) || (*name >= '0' && *name <= '9'))
        return "may hold only letters, digits and '_', and no digit first";
    if (strlen(name) > JOB_CHECK_VARIABLE_MAX)
        return "is longer than 1024 bytes";
    if (is_of_agent(name))
        return "is set by the agent for each worker; leave it out";
    return strncmp(name, "RONDO_", 6) == 0 ? "is reserved" : NULL;
}

static const char *label_problem(const char *name, const char *value)
{
    static const struct job_limit_text line = {.kind = JOB_LIMIT_LINE};
    if (job_limit_text_problem(&line, name, strlen(name)))
        return "holds a control character";
    return job_limit_text_problem(&line, value, strlen(value))
               ? "has a value that holds a control character"
               : NULL;
}

/* Names present, without '=', different; sizes of one and of all. */
static void check_pairs(struct problem_list *list, const char *path, Pb__StringPair *const *pairs,
                        size_t count, const struct pair_rule *rule)
{
    if (count > rule->count_max) {
        bad(list, path, "%zu %s are too many; at most %zu", count, rule->what, rule->count_max);
        return;
    }
    struct map *seen = map_create();
    size_t total = 0;
    for (size_t i = 0; i < count && list->count < PROBLEM_LIST_MAX; i++) {
        const char *name = or_empty(pairs[i]->name), *value = or_empty(pairs[i]->value);
        size_t name_len = strlen(name), value_len = strlen(value);
        char at[PATH_MAX_BYTES], quote[PROBLEM_QUOTE_SIZE];
        snprintf(at, sizeof at, "%s.%zu", path, i);
        problem_list_quote(name, name_len, quote);
        total += name_len + value_len + 2;
        if (name_len == 0 || strchr(name, '='))
            bad(list, at, "name '%s' %s", quote, name_len ? "must not contain '='" : "is empty");
        else if (map_put_text(seen, name, pairs[i]))
            bad(list, at, "'%s' is given twice", quote);
        else if (rule->problem(name, value))
            bad(list, at, "name '%s' %s", quote, rule->problem(name, value));
        if (name_len > rule->name_max || value_len > rule->value_max ||
            name_len + value_len + 1 > JOB_CHECK_STRING_MAX)
            bad(list, at, "'%s' has %zu bytes; a name may have %zu, a value %zu, both %d", quote,
                name_len + value_len, rule->name_max, rule->value_max, JOB_CHECK_STRING_MAX);
    }
    map_destroy(seen);
    if (total > rule->total_max)
        bad(list, path, "%zu bytes in all are too many; at most %zu", total, rule->total_max);
}

static void check_command(struct problem_list *list, const char *path, const Pb__Role *role)
{
    size_t total = 0;
    if (role->n_command == 0 || !*or_empty(role->command[0]))
        bad(list, path, "is empty; give the program and its arguments, e.g. [python3, train.py]");
    if (role->n_command > JOB_CHECK_ARGS_MAX)
        bad(list, path, "%zu arguments are too many; at most %d", role->n_command,
            JOB_CHECK_ARGS_MAX);
    for (size_t i = 0; i < role->n_command; i++)
        total += strlen(or_empty(role->command[i])) + 1;
    if (total > JOB_CHECK_BLOCK_MAX)
        bad(list, path, "%zu bytes in all are too many; at most %d", total, JOB_CHECK_BLOCK_MAX);
}

static void check_workers(struct problem_list *list, const char *path, const Pb__Role *role)
{
    char at[PATH_MAX_BYTES];
    if (role->workers_min > role->workers) {
        snprintf(at, sizeof at, "%.100s.workers_min", path);
        bad(list, at, "%u is above workers, %u; nearest %u", role->workers_min, role->workers,
            role->workers);
    }
    if (role->workers_max != 0 && role->workers_max < role->workers) {
        snprintf(at, sizeof at, "%.100s.workers_max", path);
        bad(list, at, "%u is below workers, %u; nearest %u", role->workers_max, role->workers,
            role->workers);
    }
}

static void check_role(struct problem_list *list, const char *path, const Pb__Role *role)
{
    static const struct pair_rule rule = {"variables",          JOB_CHECK_ENV_MAX,
                                          JOB_CHECK_STRING_MAX, JOB_CHECK_STRING_MAX,
                                          JOB_CHECK_BLOCK_MAX,  variable_problem};
    char at[PATH_MAX_BYTES];
    snprintf(at, sizeof at, "%.100s.command", path);
    check_command(list, at, role);
    snprintf(at, sizeof at, "%.100s.env", path);
    check_pairs(list, at, role->env, role->n_env, &rule);
    check_workers(list, path, role);
    const Pb__Resources *need = role->resources;
    if (need && need->cpus != 0 && strcmp(or_empty(need->device), "cpu") == 0) {
        snprintf(at, sizeof at, "%.100s.resources.cpus", path);
        bad(list, at, "%u beside device cpu; nearest 0: CPU slots are its devices", need->cpus);
    }
}

static void check_roles(struct problem_list *list, const Pb__JobSpec *spec)
{
    struct map *seen = map_create();
    uint64_t most = 0;
    if (spec->n_roles == 0)
        bad(list, "roles", "is empty; 1..%d are needed, each with a name and a command",
            JOB_CHECK_ROLES_MAX);
    for (size_t i = 0; i < spec->n_roles; i++) {
        const Pb__Role *role = spec->roles[i];
        char path[PATH_MAX_BYTES];
        snprintf(path, sizeof path, "roles.%zu", i);
        check_role(list, path, role);
        if (role->name && *role->name && map_put_text(seen, role->name, spec->roles[i]))
            bad(list, path, "name '%.63s' is taken by an earlier role", role->name);
        most += role->workers_max > role->workers ? role->workers_max : role->workers;
    }
    map_destroy(seen);
    if (most > JOB_CHECK_WORKERS_MAX)
        bad(list, "roles", "%llu workers in all are too many; at most %d", (unsigned long long)most,
            JOB_CHECK_WORKERS_MAX);
}

static void check_code(struct problem_list *list, const Pb__Code *code)
{
    const char *path = or_empty(code->path), *digest = or_empty(code->digest);
    const struct job_limit_text strict = {NULL, NULL, JOB_LIMIT_PATH, 1, 4095};
    if (!code->on_nodes) {
        if (!*digest)
            bad(list, "code",
                *path ? "digest is missing; rondoctl packs the path and fills it in"
                      : "needs a path");
        return;
    }
    if (*digest)
        bad(list, "code.digest", "has no meaning with on_nodes: nothing is packed");
    const char *problem = job_limit_text_problem(&strict, path, strlen(path));
    if (problem || *path != '/')
        bad(list, "code.path", "'%.60s' %s", path,
            problem ? problem : "must start with '/': with on_nodes it exists on every node");
}

static void check_watch(struct problem_list *list, const Pb__CheckpointWatch *watch)
{
    const char *pattern = or_empty(watch->pattern), *marker = or_empty(watch->marker);
    const char *step = strstr(pattern, "{step}");
    if (!step || strstr(step + 1, "{step}"))
        bad(list, "checkpoint.watch.pattern", "'%.60s' must contain {step} once, e.g. step-{step}",
            pattern);
    if (*pattern == '/' || *marker == '/')
        bad(list, "checkpoint.watch", "pattern and marker are relative; no '/' first");
}

static void check_best(struct problem_list *list, const Pb__CheckpointPolicy *policy)
{
    bool named = policy->keep_metric && *policy->keep_metric;
    if (policy->keep_best && !named)
        bad(list, "checkpoint.keep_best",
            "%u: the best by what? name a metric that rank 0 reports "
            "in keep_metric",
            policy->keep_best);
    if (!policy->keep_best && named)
        bad(list, "checkpoint.keep_metric", "'%.60s' has no meaning without keep_best",
            policy->keep_metric);
}

static void check_success(struct problem_list *list, const Pb__JobSpec *spec)
{
    const Pb__Success *success = spec->success;
    bool target = success && success->rule == PB__SUCCESS__RULE__TARGET;
    if (target && success->target_samples < 1)
        bad(list, "success.target_samples", "%lld; rule TARGET needs 1 or more, nearest 1",
            (long long)success->target_samples);
    if (target && !spec->checkpoint)
        bad(list, "success.rule", "TARGET needs a checkpoint policy: add 'checkpoint:'");
    if (success && !target && success->target_samples > 0)
        bad(list, "success.target_samples", "%lld has no meaning without 'rule: TARGET'",
            (long long)success->target_samples);
}

static void check_limits(struct problem_list *list, const Pb__JobSpec *spec)
{
    const Pb__Restart *restart = spec->restart;
    if (spec->has_grace_ms_max && spec->grace_ms > spec->grace_ms_max)
        bad(list, "grace_ms", "%llu is above grace_ms_max, %llu; nearest %llu",
            (unsigned long long)spec->grace_ms, (unsigned long long)spec->grace_ms_max,
            (unsigned long long)spec->grace_ms_max);
    if (restart && restart->has_backoff_ms_max && restart->backoff_ms > restart->backoff_ms_max)
        bad(list, "restart.backoff_ms", "%llu is above backoff_ms_max, %llu; nearest %llu",
            (unsigned long long)restart->backoff_ms, (unsigned long long)restart->backoff_ms_max,
            (unsigned long long)restart->backoff_ms_max);
}

/* Lists so long that looking at each entry would itself be work. */
static bool check_size(struct problem_list *list, const Pb__JobSpec *spec)
{
    size_t size = protobuf_c_message_get_packed_size(&spec->base);
    if (size > JOB_CHECK_BYTES_MAX)
        bad(list, "job", "%zu bytes are too many; at most %d", size, JOB_CHECK_BYTES_MAX);
    if (spec->n_roles > JOB_CHECK_ROLES_MAX)
        bad(list, "roles", "%zu are too many; at most %d", spec->n_roles, JOB_CHECK_ROLES_MAX);
    return list->count == 0;
}

enum status job_check(const Pb__JobSpec *spec, struct text *problems)
{
    static const struct pair_rule labels = {"labels", JOB_CHECK_LABELS_MAX, 63, 253,
                                            65536,    label_problem};
    struct problem_list list = {"job", false, problems, 0};
    if (!check_size(&list, spec))
        return problem_list_end(&list);
    check_message(&list, "", &spec->base);
    size_t name_len = strlen(or_empty(spec->name));
    if (name_len > 0 && (spec->name[0] == ' ' || spec->name[name_len - 1] == ' '))
        bad(&list, "name", "must not begin or end with a space");
    check_pairs(&list, "labels", spec->labels, spec->n_labels, &labels);
    check_roles(&list, spec);
    if (spec->code)
        check_code(&list, spec->code);
    check_limits(&list, spec);
    check_success(&list, spec);
    if (spec->checkpoint && spec->checkpoint->watch)
        check_watch(&list, spec->checkpoint->watch);
    if (spec->checkpoint)
        check_best(&list, spec->checkpoint);
    return problem_list_end(&list);
}

/* --- Defaults. */

static void fill_message(ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
            for (size_t k = 0; k < text_field_count(message, field); k++) {
                ProtobufCMessage **sub = text_field_element(message, field, k);
                if (repeated || *sub)
                    fill_message(*sub);
            }
        } else if (field->default_value && !text_field_is_set(message, field)) {
            if (field->type == PROTOBUF_C_TYPE_STRING) {
                char **place = text_field_place(message, field);
                *place = mem_strdup(field->default_value);
            }
            text_field_mark(message, field);
        }
    }
}

static void fill_sub(void *place, const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage **sub = place;
    if (!*sub)
        *sub = text_field_new_message(type);
}

void job_check_fill(Pb__JobSpec *spec)
{
    fill_sub(&spec->restart, &pb__restart__descriptor);
    fill_sub(&spec->phases, &pb__phases__descriptor);
    fill_sub(&spec->success, &pb__success__descriptor);
    fill_sub(&spec->checkpoint, &pb__checkpoint_policy__descriptor);
    if (!spec->has_grace_ms_max && spec->grace_ms > spec->grace_ms_max)
        spec->grace_ms_max = spec->grace_ms;
    if (!spec->restart->has_backoff_ms_max &&
        spec->restart->backoff_ms > spec->restart->backoff_ms_max)
        spec->restart->backoff_ms_max = spec->restart->backoff_ms;
    for (size_t i = 0; i < spec->n_roles; i++) {
        Pb__Role *role = spec->roles[i];
        fill_sub(&role->resources, &pb__resources__descriptor);
        role->has_workers_min = role->has_workers_max = 1;
        role->workers_min = role->workers_min ? role->workers_min : role->workers;
        role->workers_max = role->workers_max ? role->workers_max : role->workers;
    }
    fill_message(&spec->base);
}
