/* connect_target.c - where the daemon is and who we are: flags, environment, context. Any thread.
 */
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "ctl/connect.h"
#include "proto/text/text_unit.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS_DEFAULT = 15000, SERVER_BYTES_MAX = 4096 };

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static bool is_set(const char *text)
{
    return text && *text;
}

/* The flag, or the environment's value, or "". */
static const char *pick(const char *flag, connect_env env, const char *name)
{
    return is_set(flag) ? flag : or_empty(env(name));
}

/* The context directory as given, or the first of the usual ones that exists; NULL: none. */
static char *find_context(const struct connect_flags *flags, connect_env env)
{
    const char *given = pick(flags->context, env, "RONDO_CONTEXT"), *home = env("HOME");
    if (*given)
        return mem_strdup(given);
    char *usual = mem_printf("%s/.rondo/ctl", or_empty(home));
    if (is_set(home) && access(usual, X_OK) == 0)
        return usual;
    mem_free(usual);
    return access("rondo-dev/ctl", X_OK) == 0 ? mem_strdup("rondo-dev/ctl") : NULL;
}

/* The member as it is, or the file of that name in the context. */
static char *pick_file(const char *value, const char *context, const char *file)
{
    if (*value)
        return mem_strdup(value);
    return context ? mem_printf("%s/%s", context, file) : mem_strdup("");
}

static enum status pick_server(const char *value, const char *context, char **out,
                               struct error *err)
{
    if (*value) {
        *out = mem_strdup(value);
        return STATUS_OK;
    }
    if (!context)
        return error_set(err, STATUS_NOT_FOUND,
                         "no daemon is named: use --server, --context or RONDO_CONTEXT, or start "
                         "`rondod dev` here");
    SCOPED_TEXT char *path = mem_printf("%s/server", context);
    char *bytes;
    size_t len;
    enum status st = file_read(path, SERVER_BYTES_MAX, &bytes, &len, err);
    if (st != STATUS_OK)
        return error_wrap(err, "context %s", context);
    len = strcspn(bytes, " \t\r\n");
    bytes[len] = '\0';
    if (len == 0) {
        mem_free(bytes);
        return error_set(err, STATUS_INVALID, "context: %s is empty", path);
    }
    *out = bytes;
    return STATUS_OK;
}

static enum status pick_timeout(const char *value, int64_t *out, struct error *err)
{
    uint64_t ms;
    if (!*value) {
        *out = TIMEOUT_MS_DEFAULT;
        return STATUS_OK;
    }
    if (text_to_u64(value, 0, 86400, &ms))
        ms *= 1000;
    else if (!text_unit_parse(TEXT_UNIT_MS, value, strlen(value), &ms) || ms > 86400000)
        return error_set(err, STATUS_INVALID, "timeout: '%.40s' is no time such as 30s or 2m",
                         value);
    *out = (int64_t)ms;
    return STATUS_OK;
}

enum status connect_resolve(const struct connect_flags *flags, connect_env env,
                            struct connect_target *out, struct error *err)
{
    SCOPED_TEXT char *context = find_context(flags, env);
    int64_t timeout_ms = 0;
    char *server = NULL;
    enum status st = pick_timeout(pick(flags->timeout, env, "RONDO_TIMEOUT"), &timeout_ms, err);
    if (st == STATUS_OK)
        st = pick_server(pick(flags->server, env, "RONDO_SERVER"), context, &server, err);
    if (st != STATUS_OK)
        return st;
    *out = (struct connect_target){
        .server = server,
        .cert = pick_file(pick(flags->cert, env, "RONDO_CERT"), context, "ctl.pem"),
        .key = pick_file(pick(flags->key, env, "RONDO_KEY"), context, "ctl.key"),
        .ca = pick_file(pick(flags->ca, env, "RONDO_CA"), context, "ca.pem"),
        .timeout_ms = timeout_ms};
    return STATUS_OK;
}

void connect_target_fini(struct connect_target *target)
{
    mem_free(target->server);
    mem_free(target->cert);
    mem_free(target->key);
    mem_free(target->ca);
    *target = (struct connect_target){0};
}
