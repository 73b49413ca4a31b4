/* cmd_status.c - is the cluster ready. Loop thread. */
#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/output.h"
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

struct config {
    struct connect_flags connect;
};

static const struct option rows[] = {CONNECT_ROWS, {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static void print(const Pb__StatusReply *reply)
{
    bool colour = term_has_colour(STDOUT_FILENO);
    char uptime[32];
    text_duration_ms((uint64_t)(reply->uptime_ms > 0 ? reply->uptime_ms : 0), uptime,
                     sizeof uptime);
    printf("%-10s%s%s%s\n", "ready", term_code(colour, reply->ready ? TERM_GREEN : TERM_RED),
           reply->ready ? "yes" : "no", term_code(colour, TERM_PLAIN));
    for (size_t i = 0; i < reply->n_checks; i++) {
        const Pb__StatusCheck *check = reply->checks[i];
        SCOPED_TEXT char *line = mem_printf("%s: %s", check->name ? check->name : "?",
                                            check->text && *check->text ? check->text
                                            : check->ok                 ? "good"
                                                                        : "bad");
        output_text(check->ok ? "  + " : "  ! ", line);
    }
    printf("%-10s%s, up %s\n", "version", reply->version ? reply->version : "?", uptime);
    printf("%-10s%s, term %" PRIu64 "\n", "cluster", reply->cluster ? reply->cluster : "?",
           reply->term);
    printf("%-10s%u of %u healthy\n", "nodes", reply->nodes_healthy, reply->nodes);
    printf("%-10s%u active, %u queued\n", "jobs", reply->jobs_active, reply->jobs_queued);
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;
    Pb__StatusReply *reply;
    enum output_format format;
    int code = VERB_USAGE;
    (void)argc;
    (void)argv;
    if (!output_parse(config->connect.output, &format))
        return VERB_USAGE;
    struct connect *connect = connect_open(&config->connect, &code);
    if (!connect)
        return code;
    code = connect_ask(connect, "Status", &request.base, (ProtobufCMessage **)&reply);
    if (code == VERB_OK) {
        if (format == OUTPUT_TABLE)
            print(reply);
        else
            output_message(format, &reply->base);
        code = reply->ready ? VERB_OK : VERB_NEGATIVE;
        protobuf_c_message_free_unpacked(&reply->base, NULL);
    }
    connect_close(connect);
    return code;
}

const struct verb cmd_status = {.name = "status",
                                .args = "",
                                .summary = "Is the cluster ready, and if not, why; exit 1 when "
                                           "not.",
                                .examples = "  rondoctl status\n"
                                            "  rondoctl status --timeout 60s\n",
                                .rows = rows,
                                .config_size = sizeof(struct config),
                                .operands_min = 0,
                                .operands_max = 0,
                                .run = run};
