/* config.h - the options of rondod: one table feeds the YAML file, the flags, --help and the docs.
 *
 * Loop thread, at start. The struct owns its texts (config_fini). */
#pragma once
#include "base/option.h"

struct config {
    char *dir; /* dev */
    char *listen, *status_listen, *status_cert, *status_key;
    char *cert, *key, *ca, *crl_dir, *database; /* serve */
    struct option_list hosts, agent_flags;
    char *postgres_bin, *default_vault, *log_level;
    uint32_t agents, agent_slots;
    char *agent_program, *postgres_user;
    uint32_t lease_ms, heartbeat_ms, pass_ms_max, ended_max, queued_max, stop_ms;
    uint32_t points_keep_days, events_keep_days, events_keep_max, code_keep_days;
};
struct config_ca { /* rondod ca ... */
    char *ca, *kind, *name, *role, *out, *file, *cluster, *cert;
    struct option_list projects, hosts;
    uint32_t days;
};

extern const struct option config_daemon_rows[], config_ca_rows[];
extern const struct option_page config_page_dev, config_page_serve, config_page_ca;

/* What rows alone cannot say: pairs that belong together, addresses, levels. A line a problem. */
enum status config_check(const struct config *config, bool dev, struct text *problems) MUST_CHECK;
void config_fini(struct config *config);
