/* database.h - the rivals in PostgreSQL: the same server as the stand's, a database of its own.
 *
 * One thread, blocking. Uses psql and pgbench. */
#pragma once
#include "tests/bench/stand.h"

/* Makes the database `bench`; *out is its connection text, freed with mem_free. */
enum status database_create(const struct stand *stand, char **out, struct error *err) MUST_CHECK;
/* Runs sql in the database that the connection text names. *seconds may be NULL; *number, NULL or
 * where the first number of its output goes. */
enum status database_run(const struct stand *stand, const char *conninfo, const char *sql,
                         double *seconds, double *number, struct error *err) MUST_CHECK;
/* Commits a second of clients that insert one small row each. */
enum status database_pgbench(const struct stand *stand, const char *conninfo, unsigned clients,
                             unsigned seconds, double *per_s, struct error *err) MUST_CHECK;
