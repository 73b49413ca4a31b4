/* dev_dir.c - see dev_dir.h. */
#include "daemon/dev_dir.h"
#include "base/file.h"
#include "base/text.h"
#include "rpc/ca.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEV_MARKER       "rondo dev 1\n"
#define DEV_HOSTS_MAX    64
#define DEV_CERT_DAYS    365
#define DEV_CERT_RENEW_S (300 * 86400) /* a certificate older than this is made anew at start */
#define DEV_SMALL_FILE   ((size_t)64 << 10)

/* --- the directory itself */

static enum status dev_dir_check_owner(const char *path, struct error *err)
{
    struct stat st;

    if (lstat(path, &st) != 0)
        return error_set(err, file_status(errno), "look at %s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return error_set(err, STATUS_PRECONDITION, "%s is not a directory", path);
    if (st.st_uid != geteuid()) {
        struct passwd *owner = getpwuid(st.st_uid);
        return error_set(err, STATUS_DENIED,
                         "%s belongs to %s: run rondod as that user, or choose another --dir", path,
                         owner ? owner->pw_name : "another user");
    }
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(err, STATUS_DENIED, "%s may be written by others: chmod go-w it first",
                         path);
    return STATUS_OK;
}

static enum status dev_dir_lock(struct dev_dir *dir, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/lock", dir->path);

    dir->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (dir->lock < 0)
        return error_set(err, file_status(errno), "open %s: %s", path, strerror(errno));
    if (flock(dir->lock, LOCK_EX | LOCK_NB) != 0)
        return error_set(err, STATUS_EXISTS, "another rondod runs in %s (it holds %s)", dir->path,
                         path);
    return STATUS_OK;
}

/* A directory of other things is left alone: we would mix with them and, worse, clean up there. */
static enum status dev_dir_check_marker(struct dev_dir *dir, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/marker", dir->path);
    struct file_list names = {0};

    if (access(path, F_OK) == 0)
        return STATUS_OK;
    enum status st = file_list_read(dir->path, 1000, &names, err);
    if (st != STATUS_OK)
        return st;
    bool foreign = names.count > 1 || (names.count == 1 && strcmp(names.names[0], "lock") != 0);
    file_list_fini(&names);
    if (foreign)
        return error_set(err, STATUS_PRECONDITION,
                         "%s is not empty and was not made by rondod dev: choose another --dir",
                         dir->path);
    return file_write_atomic(path, DEV_MARKER, strlen(DEV_MARKER), 0600, err);
}

static char *dev_dir_absolute(const char *path)
{
    char cwd[PATH_MAX];

    if (path[0] == '/' || !getcwd(cwd, sizeof(cwd)))
        return mem_strdup(path);
    return mem_printf("%s/%s", cwd, path);
}

static enum status dev_dir_make(const struct dev_dir *dir, struct error *err)
{
    const struct {
        const char *path;
        bool passed_through;
    } below[] = {{dir->ca, false},    {dir->daemon, false}, {dir->ctl, false},
                 {dir->agents, true}, {dir->vault, true},   {dir->postgres, true}};
    mode_t open_mode = geteuid() == 0 ? 0711 : 0700;

    if (chmod(dir->path, open_mode) != 0)
        return error_set(err, file_status(errno), "chmod %s: %s", dir->path, strerror(errno));
    for (size_t i = 0; i < COUNT_OF(below); i++) {
        enum status st = file_make_dirs(below[i].path, 0700, err);
        if (st != STATUS_OK)
            return st;
        if (chmod(below[i].path, below[i].passed_through ? open_mode : 0700) != 0)
            return error_set(err, file_status(errno), "chmod %s: %s", below[i].path,
                             strerror(errno));
    }
    return STATUS_OK;
}

/* --- certificates */

struct dev_hosts {
    char *names[DEV_HOSTS_MAX];
    size_t count;
};

static void dev_hosts_add(struct dev_hosts *hosts, const char *name)
{
    for (size_t i = 0; i < hosts->count; i++)
        if (strcmp(hosts->names[i], name) == 0)
            return;
    if (hosts->count < DEV_HOSTS_MAX && *name)
        hosts->names[hosts->count++] = mem_strdup(name);
}

static void dev_hosts_add_interfaces(struct dev_hosts *hosts)
{
    struct ifaddrs *all = NULL;
    char text[INET6_ADDRSTRLEN];

    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *each = all; each; each = each->ifa_next) {
        const void *address;
        if (!each->ifa_addr)
            continue;
        if (each->ifa_addr->sa_family == AF_INET)
            address = &((const struct sockaddr_in *)(const void *)each->ifa_addr)->sin_addr;
        else if (each->ifa_addr->sa_family == AF_INET6)
            address = &((const struct sockaddr_in6 *)(const void *)each->ifa_addr)->sin6_addr;
        else
            continue;
        if (inet_ntop(each->ifa_addr->sa_family, address, text, sizeof(text)) &&
            strncmp(text, "fe80:", 5) != 0)
            dev_hosts_add(hosts, text);
    }
    freeifaddrs(all);
}

static void dev_hosts_fill(struct dev_hosts *hosts, const struct option_list *more)
{
    char name[256] = "";

    dev_hosts_add(hosts, "localhost");
    dev_hosts_add(hosts, "127.0.0.1");
    dev_hosts_add(hosts, "::1");
    if (gethostname(name, sizeof(name) - 1) == 0)
        dev_hosts_add(hosts, name);
    for (size_t i = 0; more && i < more->count; i++)
        dev_hosts_add(hosts, more->items[i]);
    dev_hosts_add_interfaces(hosts);
}

static bool dev_cert_is_fresh(const char *dir, const char *file)
{
    SCOPED_TEXT char *cert = mem_printf("%s/%s.pem", dir, file);
    SCOPED_TEXT char *key = mem_printf("%s/%s.key", dir, file);
    SCOPED_TEXT char *ca = mem_printf("%s/ca.pem", dir);
    struct stat st;

    return stat(cert, &st) == 0 && time(NULL) - st.st_mtime < DEV_CERT_RENEW_S &&
           access(key, R_OK) == 0 && access(ca, R_OK) == 0;
}

static enum status dev_cert_issue(const struct dev_dir *dir, const struct ca_request *request,
                                  const char *out, const char *file, struct error *err)
{
    if (dev_cert_is_fresh(out, file))
        return STATUS_OK;
    return ca_issue(dir->ca, request, out, file, err);
}

/* The daemon's certificate is made anew when this machine's addresses have changed. */
static enum status dev_cert_daemon(const struct dev_dir *dir, const struct option_list *more,
                                   struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/hosts", dir->daemon);
    SCOPED_TEXT char *before = NULL;
    struct dev_hosts hosts = {0};
    struct text now;
    size_t len = 0;

    text_init(&now, 0);
    dev_hosts_fill(&hosts, more);
    for (size_t i = 0; i < hosts.count; i++)
        text_addf(&now, "%s\n", hosts.names[i]);
    struct ca_request request = {.kind = "daemon",
                                 .name = "rondod",
                                 .hosts = (const char *const *)hosts.names,
                                 .hosts_count = hosts.count,
                                 .days = DEV_CERT_DAYS};
    bool same = file_read(path, DEV_SMALL_FILE, &before, &len, NULL) == STATUS_OK &&
                strcmp(before, text_get(&now)) == 0;
    enum status st = same ? dev_cert_issue(dir, &request, dir->daemon, "daemon", err)
                          : ca_issue(dir->ca, &request, dir->daemon, "daemon", err);
    if (st == STATUS_OK && !same)
        st = file_write_atomic(path, text_get(&now), now.len, 0600, err);
    for (size_t i = 0; i < hosts.count; i++)
        mem_free(hosts.names[i]);
    text_fini(&now);
    return st;
}

static const char *dev_user_name(void)
{
    struct passwd *user = getpwuid(geteuid());

    return user && user->pw_name[0] ? user->pw_name : "local";
}

static enum status dev_certs(const struct dev_dir *dir, const struct option_list *hosts,
                             struct error *err)
{
    struct ca_request admin = {.kind = "user",
                               .name = dev_user_name(),
                               .unit = "role=admin,project=*",
                               .days = DEV_CERT_DAYS};
    enum status st = ca_init(dir->ca, "rondo-dev", err);

    if (st == STATUS_OK)
        st = dev_cert_daemon(dir, hosts, err);
    if (st == STATUS_OK)
        st = dev_cert_issue(dir, &admin, dir->ctl, "ctl", err);
    return st == STATUS_OK ? st : error_wrap(err, "certificates in %s", dir->path);
}

/* --- life */

enum status dev_dir_open(const char *path, const struct option_list *hosts, struct dev_dir **out,
                         struct error *err)
{
    SCOPED(dev_dir_close) struct dev_dir *dir = NEW(struct dev_dir);

    dir->lock = -1;
    dir->path = dev_dir_absolute(path);
    dir->ca = mem_printf("%s/ca", dir->path);
    dir->daemon = mem_printf("%s/daemon", dir->path);
    dir->ctl = mem_printf("%s/ctl", dir->path);
    dir->agents = mem_printf("%s/agents", dir->path);
    dir->postgres = mem_printf("%s/postgres", dir->path);
    dir->vault = mem_printf("%s/vault", dir->path);
    enum status st = file_make_dirs(dir->path, 0700, err);
    if (st == STATUS_OK)
        st = dev_dir_check_owner(dir->path, err);
    if (st == STATUS_OK)
        st = dev_dir_lock(dir, err);
    if (st == STATUS_OK)
        st = dev_dir_check_marker(dir, err);
    if (st == STATUS_OK)
        st = dev_dir_make(dir, err);
    if (st == STATUS_OK)
        st = dev_certs(dir, hosts, err);
    if (st == STATUS_OK)
        *out = TAKE(dir);
    return st;
}

void dev_dir_close(struct dev_dir *dir)
{
    if (!dir)
        return;
    if (dir->lock >= 0)
        close(dir->lock);
    mem_free(dir->path);
    mem_free(dir->ca);
    mem_free(dir->daemon);
    mem_free(dir->ctl);
    mem_free(dir->agents);
    mem_free(dir->postgres);
    mem_free(dir->vault);
    mem_free(dir);
}

static enum status dev_dir_write(const char *dir, const char *file, const char *line,
                                 struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, file);
    SCOPED_TEXT char *text = mem_printf("%s\n", line);

    return file_write_atomic(path, text, strlen(text), 0600, err);
}

enum status dev_dir_agent(const struct dev_dir *dir, const char *name, const char *server,
                          char **path, struct error *err)
{
    SCOPED_TEXT char *own = mem_printf("%s/%s", dir->agents, name);
    struct ca_request request = {.kind = "agent", .name = name, .days = DEV_CERT_DAYS};
    enum status st = file_make_dirs(own, 0700, err);

    if (st == STATUS_OK)
        st = dev_cert_issue(dir, &request, own, "agent", err);
    if (st == STATUS_OK)
        st = dev_dir_write(own, "server", server, err);
    if (st == STATUS_OK)
        *path = TAKE(own);
    return st;
}

enum status dev_dir_announce(const struct dev_dir *dir, const char *server, const char *status,
                             struct error *err)
{
    SCOPED_TEXT char *both =
        mem_printf("grpc=%s\nhttp=%s\npid=%ld", server, status ? status : "", (long)getpid());
    enum status st = dev_dir_write(dir->ctl, "server", server, err);

    return st == STATUS_OK ? dev_dir_write(dir->path, "status", both, err) : st;
}
