/* cmd_nodes.c - the list of nodes; cordon and uncordon. Loop thread. */
#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/output.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct config {
    struct connect_flags connect;
    char *why;
};

static const struct option list_rows[] = {CONNECT_ROWS, {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};
static const struct option set_rows[] = {
    CONNECT_ROWS,
    {"why", OPT_TEXT, offsetof(struct config, why), NULL, 0, 200, "Shown with the node."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static const struct table_column columns[] = {
    {"NAME", TABLE_SHRINK},    {"SEEN", TABLE_STATE},  {"ADMIN", TABLE_STATE},
    {"DEVICES", TABLE_SHRINK}, {"USED", TABLE_RIGHT},  {"WORKERS", TABLE_RIGHT},
    {"MEMORY", TABLE_RIGHT},   {"SINCE", TABLE_RIGHT}, {"NOTE", TABLE_SHRINK}};

enum { KINDS_MAX = 8 };

/* "8 nvidia, 64 cpu" */
static void device_text(const Pb__NodeInventory *inventory, char *out, size_t cap)
{
    const char *kinds[KINDS_MAX];
    unsigned counts[KINDS_MAX];
    size_t found = 0, used = 0;
    *out = '\0';
    for (size_t i = 0; inventory && i < inventory->n_devices; i++) {
        const char *kind = inventory->devices[i]->kind ? inventory->devices[i]->kind : "?";
        size_t k = 0;
        while (k < found && strcmp(kinds[k], kind) != 0)
            k++;
        if (k == KINDS_MAX)
            continue;
        if (k == found) {
            kinds[found] = kind;
            counts[found++] = 0;
        }
        counts[k]++;
    }
    for (size_t k = 0; k < found && used < cap; k++) {
        int n = snprintf(out + used, cap - used, "%s%u %s", k ? ", " : "", counts[k], kinds[k]);
        used += n > 0 ? (size_t)n : 0;
    }
}

static void add(struct table *table, const Pb__NodeUse *use)
{
    const Pb__Node *node = use->node;
    const Pb__NodeInventory *inventory = node->inventory;
    char devices[128], memory[32] = "", since[32];
    device_text(inventory, devices, sizeof devices);
    if (inventory && inventory->memory_mib > 0)
        text_bytes(inventory->memory_mib << 20, memory, sizeof memory);
    output_age(node->seen_us, since, sizeof since);
    table_add(table, node->name);
    table_add(table, enum_name(&pb__node__seen__descriptor, (int)node->seen));
    table_add(table, enum_name(&pb__node__admin__descriptor, (int)node->admin));
    table_add(table, devices);
    table_addf(table, "%u", use->devices_used);
    table_addf(table, "%u", use->workers);
    table_add(table, memory);
    table_add(table, since);
    table_add(table, node->note);
}

static int run_list(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    Pb__ListNodesRequest request = PB__LIST_NODES_REQUEST__INIT;
    Pb__ListNodesReply *reply;
    enum output_format format;
    int code = VERB_USAGE;
    (void)argc;
    (void)argv;
    if (!output_parse(config->connect.output, &format))
        return VERB_USAGE;
    struct connect *connect = connect_open(&config->connect, &code);
    if (!connect)
        return code;
    code = connect_ask(connect, "ListNodes", &request.base, (ProtobufCMessage **)&reply);
    if (code == VERB_OK && format != OUTPUT_TABLE) {
        output_message(format, &reply->base);
    } else if (code == VERB_OK) {
        struct table *table = table_create(columns, COUNT_OF(columns));
        for (size_t i = 0; i < reply->n_nodes; i++)
            if (reply->nodes[i]->node)
                add(table, reply->nodes[i]);
        output_table_take(table);
    }
    if (code == VERB_OK)
        protobuf_c_message_free_unpacked(&reply->base, NULL);
    connect_close(connect);
    return code;
}

static int set_one(struct connect *connect, const struct config *config, enum output_format format,
                   Pb__Node__Admin admin, char *name)
{
    Pb__SetNodeRequest request = PB__SET_NODE_REQUEST__INIT;
    Pb__SetNodeReply *reply;
    char id[CONNECT_ID_SIZE];
    connect_request_id(connect, id);
    request.request_id = id;
    request.node = name;
    request.has_admin = 1;
    request.admin = admin;
    request.note = *config->why ? config->why : NULL;
    int code = connect_ask(connect, "SetNode", &request.base, (ProtobufCMessage **)&reply);
    if (code != VERB_OK)
        return code;
    if (format != OUTPUT_TABLE) {
        output_message(format, &reply->base);
    } else {
        SCOPED_TEXT char *line =
            mem_printf("node %s is %s", name,
                       enum_name(&pb__node__admin__descriptor,
                                 (int)(reply->node ? reply->node->admin : admin)));
        output_text("", line);
    }
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return VERB_OK;
}

static int set_all(const struct config *config, Pb__Node__Admin admin, int argc, char **argv)
{
    enum output_format format;
    int code = VERB_USAGE, worst = VERB_OK;
    if (!output_parse(config->connect.output, &format))
        return VERB_USAGE;
    struct connect *connect = connect_open(&config->connect, &code);
    if (!connect)
        return code;
    for (int i = 0; i < argc && worst != VERB_UNREACHED; i++) {
        code = set_one(connect, config, format, admin, argv[i]);
        worst = code > worst ? code : worst;
    }
    connect_close(connect);
    return worst;
}

static int run_cordon(const void *config, int argc, char **argv)
{
    return set_all(config, PB__NODE__ADMIN__CORDONED, argc, argv);
}

static int run_uncordon(const void *config, int argc, char **argv)
{
    return set_all(config, PB__NODE__ADMIN__IN_SERVICE, argc, argv);
}

const struct verb cmd_nodes = {.name = "nodes",
                               .args = "",
                               .summary = "List nodes: how they are, what they have, what is used.",
                               .examples = "  rondoctl nodes\n"
                                           "  rondoctl nodes -o json\n",
                               .rows = list_rows,
                               .config_size = sizeof(struct config),
                               .operands_min = 0,
                               .operands_max = 0,
                               .run = run_list};

const struct verb cmd_cordon = {.name = "cordon",
                                .args = "NODE...",
                                .summary = "Start nothing new on nodes; what runs there runs on.",
                                .examples = "  rondoctl cordon node-7 --why 'fan is loud'\n",
                                .rows = set_rows,
                                .config_size = sizeof(struct config),
                                .operands_min = 1,
                                .operands_max = -1,
                                .run = run_cordon};

const struct verb cmd_uncordon = {.name = "uncordon",
                                  .args = "NODE...",
                                  .summary = "Take nodes back into service.",
                                  .examples = "  rondoctl uncordon node-7\n",
                                  .rows = set_rows,
                                  .config_size = sizeof(struct config),
                                  .operands_min = 1,
                                  .operands_max = -1,
                                  .run = run_uncordon};
