/* status_metrics.c - /metrics in Prometheus' text format 0.0.4. Series are bounded: nodes past the
 * limit are only counted. */
#include "base/mem.h"
#include "daemon/status_request.h"
#include "proto/text/text_format.h"
#include <stdio.h>
#include <unistd.h>

#define STATUS_METRIC_NODES 2000

static void status_metric(struct text *out, const char *name, const char *type, const char *help,
                          double value)
{
    text_addf(out, "# HELP rondo_%s %s\n# TYPE rondo_%s %s\nrondo_%s %.17g\n", name, help, name,
              type, name, value);
}
#define COUNTER(name, help, value) status_metric(out, name, "counter", help, (double)(value))
#define GAUGE(name, help, value)   status_metric(out, name, "gauge", help, (double)(value))

static void status_metrics_core(struct text *out, const struct core_health *h, int64_t now_us)
{
    GAUGE("store_usable", "1 while the database answers.", h->store_usable);
    GAUGE("leader", "1 while this daemon leads.", h->term > 0 && !h->fenced);
    GAUGE("term", "Number of the leadership.", h->term);
    GAUGE("reads_stale_seconds", "Age of what reads see.", (double)h->stale_ms / 1000);
    GAUGE("nodes", "Nodes known.", h->nodes);
    GAUGE("nodes_healthy", "Nodes that are healthy.", h->nodes_healthy);
    GAUGE("jobs_active", "Jobs that hold devices.", h->jobs_active);
    GAUGE("jobs_queued", "Jobs that wait.", h->jobs_queued);
    GAUGE("inputs_waiting", "Calls and news that wait for a turn.", h->inputs_waiting);
    COUNTER("commits_total", "Transactions committed.", h->commits);
    COUNTER("commit_failures_total", "Transactions that failed.", h->commit_failures);
    GAUGE("commit_seconds_last", "Duration of the last commit.", (double)h->commit_us_last / 1e6);
    COUNTER("turns_total", "Turns of the core.", h->turns);
    COUNTER("passes_total", "Scheduling passes that ran.", h->passes);
    GAUGE("last_pass_age_seconds", "Since the last scheduling pass; -1: none yet.",
          h->last_pass_us ? (double)(now_us - h->last_pass_us) / 1e6 : -1.0);
    COUNTER("points_stored_total", "Metric points stored.", h->points_stored);
    COUNTER("points_refused_total", "Rows of points that the database refused; lost.",
            h->points_refused);
    COUNTER("events_total", "Events committed.", h->events_made);
    COUNTER("saves_committed_total", "Checkpoints committed.", h->saves_committed);
    COUNTER("saves_torn_total", "Saves that came to nothing.", h->saves_torn);
    COUNTER("saves_damaged_total", "Checkpoints whose bytes were found to be bad.",
            h->saves_damaged);
    COUNTER("saves_verified_total", "Checkpoints read again and found good.", h->saves_verified);
    COUNTER("save_bytes_total", "Bytes of committed checkpoints.", h->save_bytes);
    COUNTER("save_seconds_total", "From the first part of a save to its commit, summed.",
            (double)h->save_us / 1e6);
    GAUGE("persists", "Parts handed over to agents that are being written into vaults.",
          h->persists);
    GAUGE("persist_bytes_left", "Bytes of those not yet written.", h->persist_bytes_left);
    COUNTER("audits_total", "Recounts of what is used, from the rows.", h->audits);
    COUNTER("drifts_total", "Nodes whose use differed from such a recount; never but for a fault.",
            h->drifts);
}

static void status_metrics_serve(struct text *out, const struct status_server *server)
{
    struct status_counts counts = {0};
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);

    if (server->options.counts)
        server->options.counts(server->options.counts_arg, &counts);
    COUNTER("rpc_calls_total", "Calls taken.", counts.rpc_calls);
    COUNTER("rpc_refused_total", "Calls refused before a handler.", counts.rpc_refused);
    GAUGE("rpc_open", "Calls and streams open.", counts.rpc_open);
    GAUGE("watches", "Watches open.", counts.watches);
    GAUGE("log_relays", "Logs being read.", counts.log_relays);
    GAUGE("uploads", "Uploads of code.", counts.uploads);
    GAUGE("code_fetches", "Agents fetching code.", counts.code_fetches);
    GAUGE("agents_connected", "Control streams of agents.", counts.agents);
    GAUGE("agents_bulk", "Bulk streams of agents.", counts.bulk_streams);
    COUNTER("http_requests_total", "Requests of this endpoint.", server->requests);
    COUNTER("http_refused_total", "Requests answered by an error.", server->refused);
    GAUGE("http_connections", "Connections open.", info ? info->num_connections : 0);
    GAUGE("http_event_streams", "Streams of /events open.", server->streams);
}

static void status_metrics_process(struct text *out)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file) {
        if (fscanf(file, "%*u %lu", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    text_addf(out,
              "# HELP process_resident_memory_bytes Resident memory.\n"
              "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes %.17g\n",
              (double)pages * (double)sysconf(_SC_PAGESIZE));
    text_addf(out,
              "# HELP rondo_build_info Version of this daemon.\n# TYPE rondo_build_info gauge\n"
              "rondo_build_info{version=\"%s\"} 1\n",
              RONDO_VERSION);
}

static void status_metrics_label(struct text *out, const char *value)
{
    for (const char *c = value ? value : ""; *c; c++) {
        if (*c == '\n')
            text_add(out, "\\n");
        else if (*c == '"' || *c == '\\')
            text_addf(out, "\\%c", *c);
        else
            text_add_bytes(out, c, 1);
    }
}

enum status_node_gauge { NODE_UP, NODE_DEVICES, NODE_WORKERS };
static const struct {
    const char *name, *help;
} status_node_gauges[] = {
    [NODE_UP] = {"node_healthy", "1 while the node is healthy."},
    [NODE_DEVICES] = {"node_devices_used", "Devices that jobs hold."},
    [NODE_WORKERS] = {"node_workers", "Workers placed."},
};

static void status_metrics_nodes(struct text *out, const struct core *core)
{
    const Pb__Node **nodes = mem_array(STATUS_METRIC_NODES, sizeof(*nodes));
    size_t count = core_nodes(core, nodes, STATUS_METRIC_NODES);

    if (count > STATUS_METRIC_NODES)
        count = STATUS_METRIC_NODES;
    for (size_t gauge = 0; gauge < COUNT_OF(status_node_gauges); gauge++) {
        const char *name = status_node_gauges[gauge].name;
        text_addf(out, "# HELP rondo_%s %s\n# TYPE rondo_%s gauge\n", name,
                  status_node_gauges[gauge].help, name);
        for (size_t i = 0; i < count; i++) {
            uint32_t devices = 0, workers = 0;
            core_node_use(core, nodes[i]->name, &devices, &workers);
            const uint32_t values[] = {nodes[i]->seen == PB__NODE__SEEN__HEALTHY, devices, workers};
            text_addf(out, "rondo_%s{node=\"", name);
            status_metrics_label(out, nodes[i]->name);
            text_addf(out, "\"} %u\n", values[gauge]);
        }
    }
    mem_free(nodes);
}

void status_metrics(struct status_request *request)
{
    struct status_server *server = request->server;
    struct core_health health = {0};

    core_health(server->options.core, &health);
    status_metrics_core(&request->body, &health, loop_now_us(server->options.loop));
    status_metrics_serve(&request->body, server);
    status_metrics_process(&request->body);
    status_metrics_nodes(&request->body, server->options.core);
    status_request_text(request, 200, "text/plain; version=0.0.4; charset=utf-8");
}
