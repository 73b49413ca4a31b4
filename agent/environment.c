/* environment.c - see environment.h. */
#include "agent/environment.h"
#include "agent/device.h"
#include "base/map.h"
#include "base/mem.h"
#include "worker/env.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct environment {
    struct map *vars; /* name -> struct var */
    const char **list;
};
struct var {
    char *name, *line; /* line: NAME=VALUE */
};

static void put(struct environment *env, const char *name, const char *value)
{
    struct var *var = map_get_text(env->vars, name);
    if (!var) {
        var = NEW(struct var);
        var->name = mem_strdup(name);
        (void)map_put_text(env->vars, name, var);
    }
    mem_free(var->line);
    var->line = mem_printf("%s=%s", name, value);
}

__attribute__((format(printf, 3, 4))) static void putf(struct environment *env, const char *name,
                                                       const char *fmt, ...)
{
    char value[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(value, sizeof(value), fmt, args);
    va_end(args);
    put(env, name, value);
}

static void put_if(struct environment *env, const char *name, const char *value)
{
    if (value && *value)
        put(env, name, value);
}

static bool name_is_valid(const char *name)
{
    size_t len = strlen(name);
    if (len == 0 || len > 1024 || (name[0] >= '0' && name[0] <= '9'))
        return false;
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == len;
}

static enum status put_checked(struct environment *env, const char *name, const char *value,
                               const char *source, struct error *err)
{
    if (!name_is_valid(name))
        return error_set(err, STATUS_INVALID, "%s: '%.60s' is no name of a variable", source, name);
    if (strncmp(name, "RONDO_", 6) == 0)
        return error_set(err, STATUS_INVALID, "%s: %.60s is reserved", source, name);
    if (strlen(name) + strlen(value) > ENVIRONMENT_VALUE_BYTES_MAX)
        return error_set(err, STATUS_INVALID, "%s: %.60s is longer than %d bytes", source, name,
                         ENVIRONMENT_VALUE_BYTES_MAX);
    put(env, name, value);
    return STATUS_OK;
}

static void put_basics(struct environment *env, const struct environment_facts *facts)
{
    put(env, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    put(env, "LANG", "C.UTF-8");
    for (size_t i = 0; facts->pass_env && i < facts->pass_env->count; i++) {
        const char *name = facts->pass_env->items[i];
        if (name_is_valid(name) && facts->inherited)
            put_if(env, name, facts->inherited(name));
    }
    put(env, "HOME", facts->home && *facts->home ? facts->home : facts->tmp_dir);
    put_if(env, "USER", facts->user);
    put_if(env, "LOGNAME", facts->user);
    put(env, "TMPDIR", facts->tmp_dir);
    put(env, "PYTHONUNBUFFERED", "1");
    put(env, "OMP_NUM_THREADS", "1");
    put_if(env, "PYTHONPATH", facts->python_path);
}

static void put_torchrun(struct environment *env, const struct environment_facts *facts)
{
    const Pb__Launch *launch = facts->launch;
    const char *role = facts->key->role;
    putf(env, "RANK", "%u", facts->key->rank);
    putf(env, "LOCAL_RANK", "%u", launch->local_rank);
    putf(env, "WORLD_SIZE", "%u", launch->world);
    putf(env, "LOCAL_WORLD_SIZE", "%u", launch->local_world);
    putf(env, "GROUP_RANK", "%u", launch->group_rank);
    putf(env, "GROUP_WORLD_SIZE", "%u", launch->groups ? launch->groups : 1);
    putf(env, "ROLE_RANK", "%u", facts->key->rank);
    putf(env, "ROLE_WORLD_SIZE", "%u", launch->world);
    put(env, "ROLE_NAME", role ? role : "");
    put_if(env, "MASTER_ADDR", launch->master_addr);
    putf(env, "MASTER_PORT", "%u", launch->master_port);
    putf(env, "TORCHELASTIC_RESTART_COUNT", "%u", launch->restarts);
    putf(env, "TORCHELASTIC_MAX_RESTARTS", "%u", launch->restarts_max);
    put_if(env, "TORCHELASTIC_RUN_ID", launch->run_id);
    put(env, "TORCHELASTIC_USE_AGENT_STORE", "False");
    SCOPED_TEXT char *error_file = mem_printf("%s/error.json", facts->dir);
    put(env, "TORCHELASTIC_ERROR_FILE", error_file);
}

static void put_devices(struct environment *env, const Pb__Launch *launch)
{
    struct text text;
    const char *kind = launch->resources ? launch->resources->device : "cpu";
    text_init(&text, 65536);
    if (kind && device_visible_env(kind, launch->devices, launch->n_devices, &text)) {
        char *line = (char *)(uintptr_t)text_get(&text);
        char *equals = strchr(line, '=');
        if (equals) {
            *equals = '\0';
            put(env, line, equals + 1);
        }
    }
    text_fini(&text);
}

static void put_rondo(struct environment *env, const struct environment_facts *facts)
{
    const Pb__Launch *launch = facts->launch;
    const Pb__WorkerKey *key = facts->key;
    put(env, "RONDO_WORKER", facts->tag);
    put(env, "RONDO_NODE", facts->node ? facts->node : "");
    put(env, ENV_DIR, facts->dir);
    putf(env, ENV_JOB, "%" PRId64, key->job);
    put(env, ENV_JOB_NAME, launch->job_name ? launch->job_name : "");
    putf(env, ENV_ATTEMPT, "%u", key->attempt);
    putf(env, ENV_INCARNATION, "%u", key->incarnation);
    put(env, ENV_ROLE, key->role ? key->role : "");
    putf(env, ENV_START_US, "%" PRId64, facts->start_us);
    putf(env, "RONDO_GLOBAL_RANK", "%u", launch->global_rank);
    putf(env, "RONDO_GLOBAL_WORLD", "%u", launch->global_world);
    SCOPED_TEXT char *table = mem_printf("%s/ranks.json", facts->dir);
    put(env, "RONDO_RANK_TABLE", table);
    putf(env, ENV_EVERY_STEPS, "%" PRIu64,
         launch->checkpoint ? launch->checkpoint->every_steps : (uint64_t)0);
    if (facts->resume_dir && launch->resume) {
        put(env, ENV_RESUME_DIR, facts->resume_dir);
        putf(env, ENV_RESUME_STEP, "%" PRId64, launch->resume->step);
        putf(env, ENV_RESUME_SAMPLES, "%" PRId64, launch->resume->samples);
        putf(env, ENV_RESUME_CHECKPOINT, "%" PRId64, launch->resume->checkpoint);
        put_if(env, ENV_RESUME_SHM, facts->resume_shm);
    }
    put_if(env, ENV_ATTEMPT_DIR, facts->attempt_dir);
    put_if(env, ENV_CHECKPOINT_DIR, facts->attempt_dir);
}

static enum status put_node(struct environment *env, const struct environment_facts *facts,
                            struct error *err)
{
    for (size_t i = 0; facts->worker_env && i < facts->worker_env->count; i++) {
        SCOPED_TEXT char *line = mem_strdup(facts->worker_env->items[i]);
        char *equals = strchr(line, '=');
        if (!equals)
            return error_set(err, STATUS_INVALID, "worker_env: '%.60s' is not NAME=VALUE", line);
        *equals = '\0';
        enum status st = put_checked(env, line, equals + 1, "worker_env", err);
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

static enum status put_job(struct environment *env, const Pb__Launch *launch, struct error *err)
{
    for (size_t i = 0; i < launch->n_env; i++) {
        const Pb__StringPair *pair = launch->env[i];
        enum status st = put_checked(env, pair->name ? pair->name : "",
                                     pair->value ? pair->value : "", "env", err);
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

static enum status check_size(const struct environment *env, struct error *err)
{
    size_t at = 0, bytes = 0;
    const struct var *var;
    while ((var = map_next(env->vars, &at)))
        bytes += strlen(var->line) + 1;
    if (bytes > ENVIRONMENT_BYTES_MAX)
        return error_set(err, STATUS_INVALID, "env: %zu bytes in all, over %zu", bytes,
                         ENVIRONMENT_BYTES_MAX);
    return STATUS_OK;
}

enum status environment_create(const struct environment_facts *facts, struct environment **out,
                               struct error *err)
{
    SCOPED(environment_destroy) struct environment *env = NEW(struct environment);
    env->vars = map_create();
    put_basics(env, facts);
    put_torchrun(env, facts);
    put_devices(env, facts->launch);
    put_rondo(env, facts);
    enum status st = put_node(env, facts, err);
    if (st == STATUS_OK)
        st = put_job(env, facts->launch, err);
    if (st == STATUS_OK)
        st = check_size(env, err);
    if (st == STATUS_OK)
        *out = TAKE(env);
    return st;
}

void environment_destroy(struct environment *env)
{
    if (!env)
        return;
    size_t at = 0;
    struct var *var;
    while (env->vars && (var = map_next(env->vars, &at))) {
        mem_free(var->name);
        mem_free(var->line);
        mem_free(var);
    }
    map_destroy(env->vars);
    mem_free((void *)(uintptr_t)env->list);
    mem_free(env);
}

const char *const *environment_list(struct environment *env)
{
    if (!env->list) {
        size_t at = 0, count = 0;
        const struct var *var;
        env->list = mem_array(map_count(env->vars) + 1, sizeof(*env->list));
        while ((var = map_next(env->vars, &at)))
            env->list[count++] = var->line;
    }
    return env->list;
}

const char *environment_get(const struct environment *env, const char *name)
{
    const struct var *var = map_get_text(env->vars, name);
    return var ? var->line + strlen(var->name) + 1 : NULL;
}

static void add_json(struct text *out, const char *value)
{
    text_add(out, "\"");
    for (const char *at = value ? value : ""; *at; at++) {
        if (*at == '"' || *at == '\\')
            text_addf(out, "\\%c", *at);
        else if ((unsigned char)*at < 0x20)
            text_addf(out, "\\u%04x", (unsigned)(unsigned char)*at);
        else
            text_add_bytes(out, at, 1);
    }
    text_add(out, "\"");
}

void environment_rank_table(const Pb__Launch *launch, struct text *out)
{
    text_add(out, "[");
    for (size_t i = 0; i < launch->n_table; i++) {
        const Pb__RankPlace *place = launch->table[i];
        text_add(out, i ? ",\n {\"role\": " : "\n {\"role\": ");
        add_json(out, place->role);
        text_addf(out, ", \"rank\": %u, \"node\": ", place->rank);
        add_json(out, place->node);
        text_add(out, ", \"address\": ");
        add_json(out, place->address);
        text_addf(out, ", \"port\": %u}", place->port);
    }
    text_add(out, "\n]\n");
}
