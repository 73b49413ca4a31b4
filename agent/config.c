/* config.c - the option table of rondo-agent. */
#include "agent/config.h"

#define AT(member) offsetof(struct agent_config, member)
/* clang-format off */
const struct option config_rows[] = {
    {"node", OPT_TEXT, AT(node), NULL, 0, 253, "Name of this node; empty: its host name."},
    {"daemon", OPT_LIST, AT(daemon), "127.0.0.1:7411", 0, 0, "Where daemons listen, host:port; tried in turn."},
    {"state_dir", OPT_TEXT, AT(state_dir), "/var/lib/rondo-agent", 0, 0, "Spool, workers' directories and code cache; on a local disk."},
    {"cert", OPT_TEXT, AT(cert), NULL, 0, 0, "This agent's certificate (PEM)."},
    {"key", OPT_TEXT, AT(key), NULL, 0, 0, "Its key (PEM)."},
    {"ca", OPT_TEXT, AT(ca), NULL, 0, 0, "The cluster's certificate authority (PEM)."},
    {"server_name", OPT_TEXT, AT(server_name), NULL, 0, 0, "Name expected in the daemon's certificate; empty: the host."},
    {"shim", OPT_TEXT, AT(shim), NULL, 0, 0, "The rondo-shim program; empty: beside this one."},
    {"address", OPT_TEXT, AT(address), NULL, 0, 0, "Where workers of other nodes reach workers here; empty: the host's address."},
    {"port_first", OPT_U32, AT(port_first), "20000", 1024, 65535, "First port that may be reserved for workers."},
    {"port_last", OPT_U32, AT(port_last), "29999", 1024, 65535, "Last one."},
    {"cpu_slots", OPT_U32, AT(cpu_slots), "0", 0, 65536, "CPU slots to offer; 0: one per hardware thread."},
    {"bind_cpus", OPT_BOOL, AT(bind_cpus), "false", 0, 0, "Bind a worker to the CPUs of its slots."},
    {"memory_mib", OPT_U64, AT(memory_mib), "0", 0, INT64_MAX, "Memory to offer; 0: all of it."},
    {"nvidia_library", OPT_TEXT, AT(nvidia_library), NULL, 0, 0, "libnvidia-ml to load; none: no probe; empty: libnvidia-ml.so.1."},
    {"probe_ms_max", OPT_U32, AT(probe_ms_max), "10000", 100, 600000, "A device probe that takes longer is killed."},
    {"probe_every_ms", OPT_U32, AT(probe_every_ms), "60000", 1000, 86400000, "Time between two health checks of devices."},
    {"vault", OPT_LIST, AT(vault), NULL, 0, 0, "name=path:class, class node or shared: where checkpoints are kept."},
    {"label", OPT_LIST, AT(label), NULL, 0, 0, "name=value: labels of this node."},
    {"pass_env", OPT_LIST, AT(pass_env), "PATH,LANG,LC_ALL,TZ", 0, 0, "Variables of the agent that workers inherit; nothing else is."},
    {"worker_env", OPT_LIST, AT(worker_env), NULL, 0, 0, "NAME=VALUE for every worker here, such as GLOO_SOCKET_IFNAME=eth0."},
    {"worker_user", OPT_TEXT, AT(worker_user), NULL, 0, 64, "User of workers whose project names none; empty: nobody (agent is root) or the agent's own."},
    {"worker_umask", OPT_U32, AT(worker_umask), "18", 0, 511, "File mode mask of workers; 18 is octal 022."},
    {"python_path", OPT_TEXT, AT(python_path), NULL, 0, 0, "PYTHONPATH of workers: where the rondo package lies."},
    {"log_mib_max", OPT_U64, AT(log_mib_max), "1024", 0, 1048576, "Output kept of a running worker, each of stdout and stderr; 0: all."},
    {"logs_keep_mib", OPT_U64, AT(logs_keep_mib), "4096", 0, 1048576, "Logs kept of ended workers, in all."},
    {"logs_keep_s", OPT_U64, AT(logs_keep_s), "604800", 0, 315360000, "And how long."},
    {"code_mib_max", OPT_U64, AT(code_mib_max), "512", 1, 65536, "Largest packed code of a job; unpacked: four times that."},
    {"code_keep_mib", OPT_U64, AT(code_keep_mib), "2048", 0, 1048576, "Unpacked code kept for the next job."},
    {"spool_mib_max", OPT_U64, AT(spool_mib_max), "256", 1, 1048576, "Reports that wait for the daemon; past it they are thinned."},
    {"debug", OPT_BOOL, AT(debug), "false", 0, 0, "Log more."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL},
};
/* clang-format on */
const struct option_page config_page = {
    .program = "rondo-agent",
    .summary = "Launches and supervises the workers of a node.",
    .usage = "rondo-agent [options]",
    .examples = "rondo-agent --config /etc/rondo/agent.yaml\n"
                "rondo-agent --node n1 --daemon 10.0.0.1:7411 --state-dir /var/lib/rondo-agent\n",
    .rows = config_rows,
};
