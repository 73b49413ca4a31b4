#include "daemon/cluster_dir.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CLUSTER_PATH  "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define SOCKET_NAME   "/.s.PGSQL.5432"
#define SOCKET_MAX    (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)
#define LOG_BYTES_MAX (16 << 20)

const char *const cluster_dir_env[] = {CLUSTER_PATH, "LC_ALL=C.UTF-8", "TZ=UTC",
                                       /* A server process keeps what one statement freed for the
                                        * next: giving it back costs more than the statement. */
                                       "MALLOC_TOP_PAD_=1048576", "MALLOC_TRIM_THRESHOLD_=16777216",
                                       NULL};

/* --- who */

static enum status find_user(struct cluster_dir *dir, const char *user, struct error *err)
{
    dir->uid = geteuid();
    dir->gid = getegid();
    if (dir->uid != 0)
        return STATUS_OK;
    const struct passwd *entry = getpwnam(user ? user : "postgres");
    if (!entry)
        return error_set(err, STATUS_DENIED,
                         "the database never runs as root, and there is no user %s",
                         user ? user : "postgres");
    if (entry->pw_uid == 0)
        return error_set(err, STATUS_DENIED, "the database never runs as root: user %s is root",
                         entry->pw_name);
    dir->uid = entry->pw_uid;
    dir->gid = entry->pw_gid;
    dir->change_user = true;
    return STATUS_OK;
}

static bool may_enter(const struct cluster_dir *dir, const struct stat *st)
{
    if (st->st_uid == dir->uid)
        return st->st_mode & S_IXUSR;
    if (st->st_gid == dir->gid)
        return st->st_mode & S_IXGRP;
    return st->st_mode & S_IXOTH;
}

static enum status check_parents(const struct cluster_dir *dir, struct error *err)
{
    SCOPED_TEXT char *path = mem_strdup(dir->dir);
    struct stat st;

    for (char *end = path + strlen(path); end > path; end = strrchr(path, '/')) {
        *end = '\0';
        if (stat(path[0] ? path : "/", &st) != 0)
            return error_set(err, file_status(errno), "%s: %s", path, strerror(errno));
        if (!may_enter(dir, &st))
            return error_set(err, STATUS_DENIED,
                             "user %d, whom the database runs as, can't enter %s: choose another "
                             "directory",
                             (int)dir->uid, path);
        if (!strrchr(path, '/'))
            break;
    }
    return STATUS_OK;
}

/* --- where */

/* A directory that is the server's alone, or STATUS_DENIED: /tmp is anybody's. */
static enum status make_private(const struct cluster_dir *dir, const char *path, struct error *err)
{
    struct stat st;

    if (mkdir(path, 0700) == 0) {
        if (dir->change_user && chown(path, dir->uid, dir->gid) != 0)
            return error_set(err, file_status(errno), "chown %s: %s", path, strerror(errno));
    } else if (errno != EEXIST) {
        return error_set(err, file_status(errno), "mkdir %s: %s", path, strerror(errno));
    }
    if (lstat(path, &st) != 0)
        return error_set(err, file_status(errno), "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode) || st.st_uid != dir->uid || (st.st_mode & 0077))
        return error_set(err, STATUS_DENIED, "%s is not a private directory of user %d", path,
                         (int)dir->uid);
    return STATUS_OK;
}

/* FNV-1a: the same directory gives the same name on every start. */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037u;

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

static void choose_run(struct cluster_dir *dir)
{
    dir->run = mem_printf("%s/run", dir->dir);
    if (strlen(dir->run) + strlen(SOCKET_NAME) <= SOCKET_MAX)
        return;
    mem_free(dir->run);
    dir->run =
        mem_printf("/tmp/rondo-%d-%016llx", (int)dir->uid, (unsigned long long)hash_of(dir->dir));
}

static char *make_conninfo(const char *run)
{
    struct text text;

    text_init(&text, 0);
    text_add(&text, "host='");
    for (; *run; run++) {
        if (*run == '\'' || *run == '\\')
            text_add(&text, "\\");
        text_add_bytes(&text, run, 1);
    }
    text_add(&text, "' port=5432 dbname=postgres user=rondo");
    return text_take(&text);
}

static enum status take_lock(struct cluster_dir *dir, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/lock", dir->dir);

    dir->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (dir->lock_fd < 0)
        return error_set(err, file_status(errno), "open %s: %s", path, strerror(errno));
    if (flock(dir->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return error_set(err, STATUS_PRECONDITION, "another daemon works in %s", dir->dir);
    return STATUS_OK;
}

static void rotate_log(const struct cluster_dir *dir)
{
    SCOPED_TEXT char *old = mem_printf("%s.1", dir->log);
    struct stat st;

    if (lstat(dir->log, &st) == 0 && st.st_size > LOG_BYTES_MAX)
        (void)!rename(dir->log, old);
}

/* --- with what */

static bool has_programs(const char *bin_dir)
{
    SCOPED_TEXT char *server = mem_printf("%s/postgres", bin_dir);
    SCOPED_TEXT char *initdb = mem_printf("%s/initdb", bin_dir);

    return access(server, X_OK) == 0 && access(initdb, X_OK) == 0;
}

/* Major version of the cluster that is there; 0: none yet. */
static int made_version(const struct cluster_dir *dir)
{
    SCOPED_TEXT char *path = mem_printf("%s/PG_VERSION", dir->data);
    char *bytes = NULL;
    size_t len = 0;

    if (file_read(path, 64, &bytes, &len, NULL) != STATUS_OK)
        return 0;
    int version = (int)strtol(bytes, NULL, 10);
    mem_free(bytes);
    return version;
}

static void find_installed(struct cluster_dir *dir, int wanted)
{
    glob_t found;
    int best = 0;

    if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            const char *number = found.gl_pathv[i] + strlen("/usr/lib/postgresql/");
            int version = (int)strtol(number, NULL, 10);
            if (version <= best || (wanted && version != wanted) ||
                !has_programs(found.gl_pathv[i]))
                continue;
            best = version;
            mem_free(dir->bin_dir);
            dir->bin_dir = mem_strdup(found.gl_pathv[i]);
        }
    }
    globfree(&found);
}

static void find_in_path(struct cluster_dir *dir)
{
    const char *path = getenv("PATH");
    SCOPED_TEXT char *copy = mem_strdup(path ? path : "");
    char *rest = NULL;

    for (char *item = strtok_r(copy, ":", &rest); item && !dir->bin_dir;
         item = strtok_r(NULL, ":", &rest))
        if (item[0] == '/' && has_programs(item))
            dir->bin_dir = mem_strdup(item);
}

static enum status find_programs(struct cluster_dir *dir, const char *bin_dir, struct error *err)
{
    int wanted = made_version(dir);

    if (bin_dir && has_programs(bin_dir))
        dir->bin_dir = mem_strdup(bin_dir);
    if (!bin_dir)
        find_installed(dir, wanted);
    if (!bin_dir && !dir->bin_dir)
        find_in_path(dir);
    if (dir->bin_dir)
        return STATUS_OK;
    if (wanted && !bin_dir)
        return error_set(err, STATUS_NOT_FOUND, "%s needs PostgreSQL %d, which is not installed",
                         dir->data, wanted);
    return error_set(err, STATUS_NOT_FOUND, "no postgres and initdb in %s",
                     bin_dir ? bin_dir : "/usr/lib/postgresql/*/bin or PATH");
}

/* --- all of it */

enum status cluster_dir_init(struct cluster_dir *dir, const char *path, const char *user,
                             const char *bin_dir, struct error *err)
{
    *dir = (struct cluster_dir){.lock_fd = -1};
    if (path[0] != '/')
        return error_set(err, STATUS_INVALID, "%s: give the whole path", path);
    enum status st = find_user(dir, user, err);
    if (st == STATUS_OK)
        st = file_make_dirs(path, dir->change_user ? 0711 : 0700, err);
    if (st != STATUS_OK)
        return st;
    char *real = realpath(path, NULL);
    if (!real)
        return error_set(err, file_status(errno), "%s: %s", path, strerror(errno));
    dir->dir = real;
    dir->data = mem_printf("%s/data", real);
    dir->fresh = mem_printf("%s/data.new", real);
    dir->log = mem_printf("%s/postgres.log", real);
    choose_run(dir);
    dir->conninfo = make_conninfo(dir->run);
    st = check_parents(dir, err);
    if (st == STATUS_OK)
        st = take_lock(dir, err);
    if (st == STATUS_OK)
        st = make_private(dir, dir->run, err);
    if (st == STATUS_OK)
        st = find_programs(dir, bin_dir, err);
    if (st == STATUS_OK)
        rotate_log(dir);
    return st;
}

void cluster_dir_fini(struct cluster_dir *dir)
{
    if (dir->lock_fd >= 0)
        close(dir->lock_fd);
    mem_free(dir->dir);
    mem_free(dir->data);
    mem_free(dir->fresh);
    mem_free(dir->run);
    mem_free(dir->log);
    mem_free(dir->bin_dir);
    mem_free(dir->conninfo);
    *dir = (struct cluster_dir){.lock_fd = -1};
}

bool cluster_dir_is_made(const struct cluster_dir *dir)
{
    return made_version(dir) > 0;
}

enum status cluster_dir_prepare(const struct cluster_dir *dir, struct error *err)
{
    enum status st = file_remove_tree(dir->fresh, err);

    return st == STATUS_OK ? make_private(dir, dir->fresh, err) : st;
}

enum status cluster_dir_adopt(const struct cluster_dir *dir, struct error *err)
{
    if (rename(dir->fresh, dir->data) != 0)
        return error_set(err, file_status(errno), "rename %s: %s", dir->fresh, strerror(errno));
    return file_sync_dir(dir->dir, err);
}

/* --- command lines */

static char **words_of(const char *const *fixed, size_t count)
{
    char **words = mem_array(count + 1, sizeof(char *));

    for (size_t i = 0; i < count; i++)
        words[i] = mem_strdup(fixed[i]);
    return words;
}

void cluster_dir_free_words(char **words)
{
    for (size_t i = 0; words && words[i]; i++)
        mem_free(words[i]);
    mem_free(words);
}

char **cluster_dir_initdb(const struct cluster_dir *dir)
{
    SCOPED_TEXT char *program = mem_printf("%s/initdb", dir->bin_dir);
    const char *const words[] = {program,
                                 "-D",
                                 dir->fresh,
                                 "-U",
                                 "rondo",
                                 "-E",
                                 "UTF8",
                                 "--locale=C.UTF-8",
                                 "--auth-local=trust",
                                 "--auth-host=reject",
                                 "--no-instructions"};

    return words_of(words, COUNT_OF(words));
}

/* On the command line, so that no file can drift from what this program means. */
char **cluster_dir_server(const struct cluster_dir *dir)
{
    SCOPED_TEXT char *program = mem_printf("%s/postgres", dir->bin_dir);
    const char *const words[] = {program,
                                 "-D",
                                 dir->data,
                                 "-k",
                                 dir->run,
                                 "-p",
                                 "5432",
                                 "-clisten_addresses=",
                                 "-cunix_socket_permissions=0700",
                                 "-cfsync=on",
                                 "-csynchronous_commit=on",
                                 "-cfull_page_writes=on",
                                 "-cshared_buffers=64MB",
                                 "-cmax_connections=100",
                                 "-cmax_wal_size=1GB",
                                 "-cwal_compression=on",
                                 "-cmax_parallel_workers=2",
                                 "-cjit=off",
                                 "-clogging_collector=off",
                                 "-clog_destination=stderr",
                                 "-clog_line_prefix=%m [%p] %a ",
                                 "-clog_checkpoints=off",
                                 "-crestart_after_crash=on"};

    return words_of(words, COUNT_OF(words));
}
