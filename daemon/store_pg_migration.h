/* store_pg_migration.h - the SQL files of daemon/sql, as they are inside the program.
 *
 * Made at build by daemon/sql/embed.cmake; any thread. Ordered by number; number 0 runs on every
 * start before anybody leads, the others once each, in order. */
#pragma once

struct store_pg_migration {
    int number; /* negative: the end */
    const char *name, *sql;
};
extern const struct store_pg_migration store_pg_migrations[];
