/* cluster_dir.h - where an embedded cluster lives: user, paths, programs, settings.
 *
 * Loop thread, blocking on small files, at start only. Owns its texts. */
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <sys/types.h>

struct cluster_dir {
    char *dir, *data, *fresh, *run, *log; /* fresh: where initdb works; renamed to data */
    char *bin_dir;
    char *conninfo;
    uid_t uid; /* of the server */
    gid_t gid;
    bool change_user; /* we are root */
    int lock_fd;
};

/* Makes the directories, takes the lock, finds the programs. DENIED: root without a user, a parent
 * that the user can't enter, a socket directory that is not ours. PRECONDITION: another daemon has
 * it. NOT_FOUND: no PostgreSQL. */
enum status cluster_dir_init(struct cluster_dir *dir, const char *path, const char *user,
                             const char *bin_dir, struct error *err) MUST_CHECK;
void cluster_dir_fini(struct cluster_dir *dir);
bool cluster_dir_is_made(const struct cluster_dir *dir); /* there is a cluster in it */
/* Empties and makes `fresh`; afterwards initdb runs in it, then adopt makes it the data. */
enum status cluster_dir_prepare(const struct cluster_dir *dir, struct error *err) MUST_CHECK;
enum status cluster_dir_adopt(const struct cluster_dir *dir, struct error *err) MUST_CHECK;
/* NULL-terminated; free each and the array with mem_free. */
char **cluster_dir_initdb(const struct cluster_dir *dir);
char **cluster_dir_server(const struct cluster_dir *dir);
void cluster_dir_free_words(char **words);
extern const char *const cluster_dir_env[];
