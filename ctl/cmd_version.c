/* cmd_version.c - versions on both ends. Loop thread. */
#include "ctl/cmd.h"
#include "ctl/output.h"
#include "proto/text/text_quote.h"
#include <stdio.h>
#include <string.h>

struct config {
    struct connect_flags connect;
    bool daemon;
};

static const struct option rows[] = {CONNECT_ROWS,
                                     {"daemon", OPT_BOOL, offsetof(struct config, daemon), "false",
                                      0, 0, "Ask the daemon for its version too."},
                                     {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

/* `daemon` NULL: not asked. JSON and YAML read the same quotes. */
static void print(enum output_format format, const char *daemon)
{
    struct text out;
    if (format == OUTPUT_TABLE) {
        printf("rondoctl %s\n", RONDO_VERSION);
        if (daemon)
            output_text("rondod ", daemon);
        return;
    }
    bool json = format == OUTPUT_JSON;
    text_init(&out, 0);
    text_add(&out, json ? "{\n  \"rondoctl\": " : "rondoctl: ");
    text_quote(RONDO_VERSION, strlen(RONDO_VERSION), &out);
    if (daemon) {
        text_add(&out, json ? ",\n  \"rondod\": " : "\nrondod: ");
        text_quote(daemon, strlen(daemon), &out);
    }
    text_add(&out, json ? "\n}\n" : "\n");
    fputs(text_get(&out), stdout);
    text_fini(&out);
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;
    Pb__StatusReply *reply = NULL;
    enum output_format format;
    int code = VERB_USAGE;
    (void)argc;
    (void)argv;
    if (!output_parse(config->connect.output, &format))
        return VERB_USAGE;
    struct connect *connect = config->daemon ? connect_open(&config->connect, &code) : NULL;
    if (connect)
        code = connect_ask(connect, "Status", &request.base, (ProtobufCMessage **)&reply);
    if (connect && code != VERB_OK)
        reply = NULL;
    print(format, reply ? (reply->version ? reply->version : "?") : NULL);
    if (reply)
        protobuf_c_message_free_unpacked(&reply->base, NULL);
    connect_close(connect);
    return config->daemon ? code : VERB_OK;
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
