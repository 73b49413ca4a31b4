/* database.c - see database.h. */
#include "tests/bench/database.h"
#include "base/file.h"
#include "base/mem.h"
#include "tests/bench/process.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SQL_MS     120000
#define OUTPUT_MAX ((size_t)1 << 20)

static const char pgbench_script[] = "insert into one (value) values (1);\n";

enum status database_run(const struct stand *stand, const char *conninfo, const char *sql,
                         double *seconds, double *number, struct error *err)
{
    SCOPED_TEXT char *out = mem_printf("%s/psql.out", stand->dir);
    SCOPED_TEXT char *text = NULL;
    const char *argv[] = {"psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", conninfo,
                          "-c",   sql,     NULL};
    struct process_result result;
    size_t len;
    enum status st = process_must(argv, "/", out, SQL_MS, &result, err);

    if (st != STATUS_OK)
        return st;
    if (seconds)
        *seconds = (double)result.wall_us / 1e6;
    if (number && file_read(out, OUTPUT_MAX, &text, &len, err) == STATUS_OK)
        *number = strtod(text, NULL);
    return STATUS_OK;
}

enum status database_create(const struct stand *stand, char **out, struct error *err)
{
    static const char name[] = "dbname=";
    enum status st = database_run(stand, stand->database, "create database bench", NULL, NULL, err);

    if (st != STATUS_OK)
        return st;
    const char *from = strstr(stand->database, name);
    if (!from)
        return error_set(err, STATUS_INTERNAL, "no dbname in %s", stand->database);
    const char *rest = from + strlen(name) + strcspn(from + strlen(name), " ");
    *out = mem_printf("%.*s%sbench%s", (int)(from - stand->database), stand->database, name, rest);
    return STATUS_OK;
}

/* One run; *per_s is 0 when not even the connections were made in that time. */
static enum status pgbench_once(const struct stand *stand, const char *conninfo, unsigned clients,
                                unsigned seconds, double *per_s, struct error *err)
{
    SCOPED_TEXT char *script = mem_printf("%s/insert.sql", stand->dir);
    SCOPED_TEXT char *out = mem_printf("%s/pgbench.out", stand->dir);
    SCOPED_TEXT char *count = mem_printf("%u", clients);
    SCOPED_TEXT char *time = mem_printf("%u", seconds);
    SCOPED_TEXT char *text = NULL;
    const char *argv[] = {"pgbench", "-n", "-M", "prepared", "-c",   count,    "-j",
                          "2",       "-T", time, "-f",       script, conninfo, NULL};
    struct process_result result;
    size_t len;
    enum status st = file_write_atomic(script, pgbench_script, strlen(pgbench_script), 0600, err);

    if (st == STATUS_OK)
        st = process_must(argv, "/", out, (int64_t)seconds * 1000 + 30000, &result, err);
    if (st == STATUS_OK)
        st = file_read(out, OUTPUT_MAX, &text, &len, err);
    if (st != STATUS_OK)
        return error_wrap(err, "pgbench");
    const char *tps = strstr(text, "tps = ");
    *per_s = tps ? strtod(tps + 6, NULL) : 0;
    return STATUS_OK;
}

enum status database_pgbench(const struct stand *stand, const char *conninfo, unsigned clients,
                             unsigned seconds, double *per_s, struct error *err)
{
    enum status st = database_run(stand, conninfo,
                                  "create table if not exists one (id bigserial primary key, "
                                  "value bigint)",
                                  NULL, NULL, err);

    *per_s = 0;
    for (unsigned tries = 0; tries < 3 && st == STATUS_OK && *per_s <= 0; tries++)
        st = pgbench_once(stand, conninfo, clients, seconds << (2 * tries), per_s, err);
    if (st == STATUS_OK && *per_s <= 0)
        return error_set(err, STATUS_DEADLINE, "pgbench committed nothing");
    return st;
}
