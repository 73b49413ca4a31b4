/* config.h - what an operator can set on an agent. Rows in config.c feed file, flags, --help, docs.
 */
#pragma once
#include "base/option.h"

struct agent_config {
    char *node, *state_dir, *address, *server_name;
    struct option_list daemon; /* host:port, tried in turn */
    char *cert, *key, *ca;
    char *shim;
    uint32_t port_first, port_last;
    char *peer_listen;
    uint32_t peer_port;
    uint32_t cpu_slots, probe_ms_max, probe_every_ms;
    char *nvidia_library;
    uint64_t memory_mib;
    bool bind_cpus;
    struct option_list vault, label;
    char *slot_dir;
    uint64_t slot_mib_max, slot_keep_s, verify_mib_s;
    struct option_list pass_env, worker_env;
    char *worker_user, *python_path;
    uint32_t worker_umask, worker_tasks_max, spares;
    uint64_t log_mib_max, logs_keep_mib, logs_keep_s;
    uint64_t code_mib_max, code_keep_mib;
    uint64_t spool_mib_max;
    bool debug;
};
extern const struct option config_rows[];
extern const struct option_page config_page;
