/* cmd_version.c - versions on both ends. Loop thread. */
#include "ctl/cmd.h"
#include "ctl/output.h"
#include <stdio.h>

struct config {
    struct connect_flags connect;
    bool daemon;
};

static const struct option rows[] = {CONNECT_ROWS,
                                     {"daemon", OPT_BOOL, offsetof(struct config, daemon), "false",
                                      0, 0, "Ask the daemon for its version too."},
                                     {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;
    Pb__StatusReply *reply;
    int code = VERB_USAGE;
    (void)argc;
    (void)argv;
    printf("rondoctl %s\n", RONDO_VERSION);
    if (!config->daemon)
        return VERB_OK;
    struct connect *connect = connect_open(&config->connect, &code);
    if (!connect)
        return code;
    code = connect_ask(connect, "Status", &request.base, (ProtobufCMessage **)&reply);
    if (code == VERB_OK) {
        output_text("rondod ", reply->version ? reply->version : "?");
        protobuf_c_message_free_unpacked(&reply->base, NULL);
    }
    connect_close(connect);
    return code;
}

const struct verb cmd_version = {.name = "version",
                                 .args = "",
                                 .summary = "The version of rondoctl, and of the daemon.",
                                 .examples = "  rondoctl version --daemon\n",
                                 .rows = rows,
                                 .config_size = sizeof(struct config),
                                 .operands_min = 0,
                                 .operands_max = 0,
                                 .run = run};
