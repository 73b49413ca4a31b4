/* config.c - see config.h. */
#include "daemon/config.h"
#include "base/mem.h"
#include "daemon/listener.h"
#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct config, member)

const struct option config_daemon_rows[] = {
    {"dir", OPT_TEXT, AT(dir), "rondo-dev", 0, 0,
     "Directory of `dev`: database, certificates, agents, vault."},
    {"listen", OPT_TEXT, AT(listen), "127.0.0.1:7411", 0, 255,
     "Address of the gRPC services; port 0 takes any free one."},
    {"status_listen", OPT_TEXT, AT(status_listen), "127.0.0.1:7412", 0, 255,
     "Address of the status endpoint (HTTP); empty turns it off."},
    {"status_cert", OPT_TEXT, AT(status_cert), NULL, 0, 0,
     "PEM certificate of the status endpoint; needed off loopback."},
    {"status_key", OPT_TEXT, AT(status_key), NULL, 0, 0, "PEM key of the status endpoint."},
    {"cert", OPT_TEXT, AT(cert), NULL, 0, 0, "PEM certificate of this daemon (`serve`)."},
    {"key", OPT_TEXT, AT(key), NULL, 0, 0, "PEM key of this daemon (`serve`)."},
    {"ca", OPT_TEXT, AT(ca), NULL, 0, 0,
     "PEM certificate that callers' certificates are signed by (`serve`)."},
    {"crl_dir", OPT_TEXT, AT(crl_dir), NULL, 0, 0,
     "Directory with revocation lists, <hash>.r0 (`serve`)."},
    {"database", OPT_TEXT, AT(database), NULL, 0, 2000,
     "PostgreSQL connection text, a unix socket or hostaddr (`serve`)."},
    {"hosts", OPT_LIST, AT(hosts), NULL, 0, 253,
     "More names and addresses in the certificate that `dev` makes for itself."},
    {"postgres_bin", OPT_TEXT, AT(postgres_bin), NULL, 0, 0,
     "Directory of initdb and postgres; empty looks in the usual places (`dev`)."},
    {"agents", OPT_U32, AT(agents), "0", 0, 64,
     "Agents to start and supervise on this machine, named n1, n2 ... (`dev`)."},
    {"agent_slots", OPT_U32, AT(agent_slots), "0", 0, 4096,
     "CPU slots of each such agent; 0 lets the agent count (`dev`)."},
    {"agent_program", OPT_TEXT, AT(agent_program), NULL, 0, 0,
     "Path of rondo-agent; empty takes the one beside rondod (`dev`)."},
    {"agent_flags", OPT_LIST, AT(agent_flags), NULL, 0, 0,
     "More flags for each such agent, such as --python-path=DIR (`dev`)."},
    {"postgres_user", OPT_TEXT, AT(postgres_user), "postgres", 0, 64,
     "Whom the database runs as when we are root (`dev`)."},
    {"default_vault", OPT_TEXT, AT(default_vault), "default", 0, 253,
     "Vault of jobs that name none."},
    {"lease_ms", OPT_U32, AT(lease_ms), "15000", 1000, 600000,
     "A silent agent keeps its jobs this long."},
    {"heartbeat_ms", OPT_U32, AT(heartbeat_ms), "3000", 100, 60000,
     "How often agents say that they live; at most a third of lease_ms."},
    {"pass_ms_max", OPT_U32, AT(pass_ms_max), "15000", 1000, 3600000,
     "readyz fails when no scheduling pass has run for this long."},
    {"points_keep_days", OPT_U32, AT(points_keep_days), "0", 0, 36500,
     "Metric points older than this many days are dropped, a day at a time; 0 keeps them all."},
    {"events_keep_days", OPT_U32, AT(events_keep_days), "90", 0, 36500,
     "Events older than this many days are deleted, but for those of jobs that have not ended; 0: "
     "no such bound."},
    {"events_keep_max", OPT_U32, AT(events_keep_max), "5000000", 0, 1000000000,
     "More events than this are deleted, oldest first, but for those of jobs that have not ended; "
     "0: no such bound."},
    {"code_keep_days", OPT_U32, AT(code_keep_days), "30", 0, 36500,
     "Code that no job has used for this many days is deleted; 0 keeps it all."},
    {"ended_max", OPT_U32, AT(ended_max), "2000", 10, 1000000,
     "Ended jobs kept in memory; older ones are read from the database."},
    {"queued_max", OPT_U32, AT(queued_max), "100000", 1, 10000000,
     "More submits than this are refused until jobs leave the queue."},
    {"stop_ms", OPT_U32, AT(stop_ms), "2000", 0, 60000,
     "How long open calls may take to end when the daemon stops."},
    {"log_level", OPT_TEXT, AT(log_level), "info", 0, 16, "debug, info, warn or error."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL},
};

#undef AT
#define AT(member) offsetof(struct config_ca, member)
const struct option config_ca_rows[] = {
    {"ca", OPT_TEXT, AT(ca), "rondo-dev/ca", 0, 0, "Directory of the certificate authority."},
    {"cluster", OPT_TEXT, AT(cluster), "rondo", 0, 64,
     "init: name in the authority's certificate."},
    {"kind", OPT_TEXT, AT(kind), "user", 0, 16, "issue: user, agent or daemon."},
    {"name", OPT_TEXT, AT(name), NULL, 0, 200, "issue: who it is for, such as ada or node-7."},
    {"role", OPT_TEXT, AT(role), "viewer", 0, 16, "issue, users: admin, submitter or viewer."},
    {"projects", OPT_LIST, AT(projects), NULL, 0, 100,
     "issue, submitters: projects they may use; '*' for all."},
    {"hosts", OPT_LIST, AT(hosts), NULL, 0, 253, "issue, daemons: DNS names and addresses."},
    {"days", OPT_U32, AT(days), "365", 1, 3650, "issue: how long it is valid."},
    {"out", OPT_TEXT, AT(out), NULL, 0, 0, "issue: directory for certificate, key and ca.pem."},
    {"file", OPT_TEXT, AT(file), NULL, 0, 64,
     "issue: name of the files without ending; empty: ctl, agent or daemon by kind."},
    {"cert", OPT_TEXT, AT(cert), NULL, 0, 0, "revoke: the certificate."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL},
};

const struct option_page config_page_dev = {
    "rondod dev",
    "The daemon with everything it needs in one directory: private PostgreSQL, certificates, "
    "agents.",
    "rondod dev [--dir DIR] [--agents N] [options]",
    "rondod dev                                 # ./rondo-dev, no agents\n"
    "rondod dev --dir /srv/rondo --agents 3     # three agents on this machine\n"
    "rondod dev --listen 127.0.0.1:0            # any free port, written to DIR/ctl/server\n",
    config_daemon_rows};
const struct option_page config_page_serve = {
    "rondod serve", "The daemon on a given database and with given certificates.",
    "rondod serve --database TEXT --cert FILE --key FILE --ca FILE [options]",
    "rondod serve --config /etc/rondo/rondod.yaml\n", config_daemon_rows};
const struct option_page config_page_ca = {
    "rondod ca", "The private certificate authority.", "rondod ca init|issue|revoke [options]",
    "rondod ca issue --kind agent --name n1 --out rondo-dev/agents/n1\n"
    "rondod ca issue --kind user --name ada --role submitter --projects nlp --out ada\n"
    "rondod ca revoke --cert ada/ctl.pem\n",
    config_ca_rows};

static bool config_is_set(const char *text)
{
    return text && *text;
}

static void config_check_serve(const struct config *config, struct text *problems)
{
    if (!config_is_set(config->database))
        text_add(problems, "database: needed by serve\n");
    if (!config_is_set(config->cert) || !config_is_set(config->key) || !config_is_set(config->ca))
        text_add(problems, "cert, key, ca: all three are needed by serve\n");
}

static void config_check_addresses(const struct config *config, struct text *problems)
{
    char host[64];
    uint16_t port;
    struct error err;

    if (listener_parse(config->listen, host, sizeof(host), &port, &err) != STATUS_OK)
        text_addf(problems, "listen: %s\n", err.text);
    if (!config_is_set(config->status_listen))
        return;
    if (listener_parse(config->status_listen, host, sizeof(host), &port, &err) != STATUS_OK)
        text_addf(problems, "status_listen: %s\n", err.text);
    else if (!listener_is_loopback(config->status_listen) && !config_is_set(config->status_cert))
        text_add(problems, "status_listen: off loopback it needs status_cert and status_key\n");
    if (config_is_set(config->status_cert) != config_is_set(config->status_key))
        text_add(problems, "status_cert, status_key: both or none\n");
}

enum status config_check(const struct config *config, bool dev, struct text *problems)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    size_t before = problems->len;
    bool level = false;

    if (!dev)
        config_check_serve(config, problems);
    if (dev && !config_is_set(config->dir))
        text_add(problems, "dir: needed by dev\n");
    config_check_addresses(config, problems);
    if (config->heartbeat_ms > config->lease_ms / 3)
        text_add(problems, "heartbeat_ms: at most a third of lease_ms\n");
    for (size_t i = 0; i < COUNT_OF(levels); i++)
        level = level || strcmp(config->log_level, levels[i]) == 0;
    if (!level)
        text_add(problems, "log_level: debug, info, warn or error\n");
    return problems->len == before ? STATUS_OK : STATUS_INVALID;
}

void config_fini(struct config *config)
{
    option_fini(config_daemon_rows, config);
}
