/* dev_dir.h - the directory of `rondod dev`: who owns it, what lies where, certificates.
 *
 * At start, blocking. Everything is made with mode 0700 or 0600; a directory that others must pass
 * through (PostgreSQL and workers run as users of their own when we are root) is 0711. Safe against
 * kill -9 at any line: each step looks whether it was done, files appear by rename. A lock keeps a
 * second daemon out while this one lives.
 *
 *   lock marker                     ca/                 authority: ca.pem ca.key crl/
 *   daemon/ daemon.pem .key         ctl/                ctl.pem ctl.key ca.pem server
 *   agents/nX/ agent.pem .key ca.pem server ports agent.pid agent.log and the agent's own
 *   postgres/  private cluster      vault/              checkpoints of the default vault
 *   status     where this daemon listens */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include "base/option.h"

struct dev_dir {
    char *path; /* absolute */
    char *ca, *daemon, *ctl, *agents, *postgres, *vault;
    int lock;
};
/* hosts: more names for the daemon's certificate. STATUS_EXISTS: another daemon runs in it;
 * STATUS_DENIED: it belongs to another user; STATUS_PRECONDITION: it holds something else. */
enum status dev_dir_open(const char *path, const struct option_list *hosts, struct dev_dir **out,
                         struct error *err) MUST_CHECK;
void dev_dir_close(struct dev_dir *dir); /* NULL is fine */
SCOPED_DESTRUCTOR(struct dev_dir *, dev_dir_close)
/* Certificate and directory of the agent of that name; *path (agents/<name>) is given. */
enum status dev_dir_agent(const struct dev_dir *dir, const char *name, const char *server,
                          char **path, struct error *err) MUST_CHECK;
/* Tells clients and people where the daemon listens; status NULL: no status endpoint. */
enum status dev_dir_announce(const struct dev_dir *dir, const char *server, const char *status,
                             struct error *err) MUST_CHECK;
