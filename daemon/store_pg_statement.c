#include "daemon/store_pg_statement.h"
#include <string.h>

const struct store_pg_statement store_pg_statements[STORE_STATEMENT_COUNT] = {
#define X(name, values, sql) {#name, values, sql},
#include "daemon/store_statements.def"
#undef X
};
#define X(name, values, sql)                                                                       \
    _Static_assert((values) <= STORE_PG_VALUES_MAX, "too many values for one statement");
#include "daemon/store_statements.def"
#undef X

/* By SQLSTATE, the longest prefix that fits comes first. */
static const struct state_rule {
    const char *prefix;
    enum status st;
} state_rules[] = {
    {"RD001", STATUS_ABORTED},     /* our own fence */
    {"57014", STATUS_UNAVAILABLE}, /* statement timeout */
    {"57P", STATUS_UNAVAILABLE},   /* shutting down, starting up */
    {"40", STATUS_UNAVAILABLE},    /* serialization, deadlock */
    {"53", STATUS_UNAVAILABLE},    /* disk full, out of memory, too many connections */
    {"55P03", STATUS_UNAVAILABLE}, /* lock timeout */
    {"58", STATUS_UNAVAILABLE},    /* input/output error */
    {"25006", STATUS_UNAVAILABLE}, /* read-only: a replica, or being switched over */
    {"08", STATUS_UNAVAILABLE},    /* connection */
    {"22", STATUS_INVALID},        /* data */
    {"23", STATUS_INVALID},        /* constraint */
};

enum status store_pg_statement_error(const PGresult *result, struct error *err)
{
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *text = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    const char *hint = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL) : NULL;
    enum status st = STATUS_INTERNAL;

    for (size_t i = 0; state && i < sizeof(state_rules) / sizeof(state_rules[0]); i++) {
        if (strncmp(state, state_rules[i].prefix, strlen(state_rules[i].prefix)) == 0) {
            st = state_rules[i].st;
            break;
        }
    }
    if (!text)
        text = result ? PQresultErrorMessage(result) : "no answer";
    return error_set(err, st, "database: %s%s%s%s%s%s", text, hint ? " (" : "", hint ? hint : "",
                     hint ? ")" : "", state ? " " : "", state ? state : "");
}
