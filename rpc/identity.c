#include "rpc/identity.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

#define URI_PREFIX "spiffe://rondo/"

static const struct {
    const char *text;
    unsigned role;
} user_roles[] = {
    {"admin", IDENTITY_ADMIN},
    {"submitter", IDENTITY_SUBMITTER},
    {"viewer", IDENTITY_VIEWER},
};

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return -1;
}

/* Undoes %XX. False when malformed, too long, empty, or no clean text. */
static bool name_decode(const char *in, char *out, size_t cap)
{
    size_t len = 0;

    for (; *in; in++) {
        int byte = (unsigned char)*in;
        if (*in == '%') {
            int high = hex_value(in[1]), low = high < 0 ? -1 : hex_value(in[2]);
            if (low < 0)
                return false;
            byte = high * 16 + low;
            in += 2;
        }
        if (byte < 0x20 || byte == 0x7f || byte == '/' || len + 1 >= cap)
            return false;
        out[len++] = (char)byte;
    }
    out[len] = '\0';
    return len > 0 && text_is_utf8(out, len);
}

static bool project_add(struct identity *who, const char *project, size_t len)
{
    size_t have = strlen(who->projects), comma = have > 0;

    if (len == 0 || have + comma + len >= sizeof who->projects)
        return false;
    if (comma)
        who->projects[have] = ',';
    memcpy(who->projects + have + comma, project, len);
    who->projects[have + comma + len] = '\0';
    return true;
}

static bool unit_item(struct identity *who, const char *item, size_t len)
{
    if (len > 8 && memcmp(item, "project=", 8) == 0)
        return project_add(who, item + 8, len - 8);
    if (len > 5 && memcmp(item, "role=", 5) == 0)
        for (size_t i = 0; i < sizeof user_roles / sizeof *user_roles; i++)
            if (strlen(user_roles[i].text) == len - 5 &&
                memcmp(user_roles[i].text, item + 5, len - 5) == 0) {
                who->roles |= user_roles[i].role;
                return true;
            }
    return false;
}

static bool unit_parse(struct identity *who, const char *unit)
{
    while (unit && *unit) {
        size_t len = strcspn(unit, ",");
        if (!unit_item(who, unit, len))
            return false;
        unit += len;
        if (*unit == ',' && *++unit == '\0')
            return false;
    }
    return true;
}

enum status identity_parse(const char *uri, const char *unit, struct identity *out,
                           struct error *err)
{
    struct identity who = {0};
    const char *kind, *slash;

    if (!uri || strncmp(uri, URI_PREFIX, strlen(URI_PREFIX)) != 0)
        return error_set(err, STATUS_UNAUTHENTICATED, "the certificate names no Rondo identity");
    kind = uri + strlen(URI_PREFIX);
    slash = strchr(kind, '/');
    if (!slash || slash == kind || (size_t)(slash - kind) >= sizeof who.kind ||
        !name_decode(slash + 1, who.name, sizeof who.name))
        return error_set(err, STATUS_UNAUTHENTICATED, "malformed identity in the certificate");
    memcpy(who.kind, kind, (size_t)(slash - kind));
    if (strcmp(who.kind, "agent") == 0)
        who.roles = IDENTITY_AGENT;
    else if (strcmp(who.kind, "daemon") == 0)
        who.roles = IDENTITY_DAEMON;
    else if (strcmp(who.kind, "user") != 0)
        return error_set(err, STATUS_UNAUTHENTICATED, "unknown kind of identity");
    else if (!unit_parse(&who, unit))
        return error_set(err, STATUS_UNAUTHENTICATED, "malformed roles in the certificate");
    *out = who;
    return STATUS_OK;
}

bool identity_may_use(const struct identity *who, const char *project)
{
    size_t len = project ? strlen(project) : 0;

    if (who->roles & IDENTITY_ADMIN)
        return true;
    if (len == 0)
        return false;
    for (const char *item = who->projects; *item;) {
        size_t item_len = strcspn(item, ",");
        if ((item_len == 1 && *item == '*') || (item_len == len && memcmp(item, project, len) == 0))
            return true;
        item += item_len + (item[item_len] == ',');
    }
    return false;
}

void identity_text(const struct identity *who, char *out, size_t cap)
{
    snprintf(out, cap, "%s/%s", who->kind, who->name);
}
