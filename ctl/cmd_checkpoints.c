/* cmd_checkpoints.c - a job's checkpoints. Loop thread. */
#include "base/mem.h"
#include "ctl/checkpoint_at.h"
#include "ctl/cmd.h"
#include "ctl/output.h"
#include "proto/text/text_format.h"
#include <inttypes.h>

struct config {
    struct connect_flags connect;
    uint32_t limit;
};

static const struct option rows[] = {CONNECT_ROWS,
                                     {"limit", OPT_U32, offsetof(struct config, limit), "50", 1,
                                      5000, "At most this many, the newest."},
                                     {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static const struct table_column columns[] = {{"ID", TABLE_RIGHT},      {"STEP", TABLE_RIGHT},
                                              {"SAMPLES", TABLE_RIGHT}, {"STATE", TABLE_STATE},
                                              {"ATTEMPT", TABLE_RIGHT}, {"SIZE", TABLE_RIGHT},
                                              {"AGE", TABLE_RIGHT},     {"VAULT", TABLE_SHRINK},
                                              {"PATH", TABLE_SHRINK},   {"NOTE", TABLE_SHRINK}};

static void add(struct table *table, const Pb__Checkpoint *checkpoint)
{
    char size[32], age[32];
    text_bytes(checkpoint->bytes, size, sizeof size);
    output_age(checkpoint->committed_us ? checkpoint->committed_us : checkpoint->created_us, age,
               sizeof age);
    table_addf(table, "%" PRId64, checkpoint->id);
    table_addf(table, "%" PRId64, checkpoint->step);
    table_addf(table, "%" PRId64, checkpoint->samples);
    table_add(table, enum_name(&pb__checkpoint__state__descriptor, (int)checkpoint->state));
    table_addf(table, "%u", checkpoint->attempt);
    table_add(table, size);
    table_add(table, age);
    table_add(table, checkpoint->vault);
    table_add(table, checkpoint->path);
    table_add(table, checkpoint->reason);
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    Pb__ListCheckpointsReply *reply;
    enum output_format format;
    int code = VERB_USAGE;
    (void)argc;
    if (!output_parse(config->connect.output, &format))
        return VERB_USAGE;
    struct connect *connect = connect_open(&config->connect, &code);
    if (!connect)
        return code;
    code = checkpoint_at_list(connect, argv[0], config->limit, NULL, &reply);
    if (code == VERB_OK && format != OUTPUT_TABLE) {
        output_message(format, &reply->base);
    } else if (code == VERB_OK) {
        struct table *table = table_create(columns, COUNT_OF(columns));
        for (size_t i = 0; i < reply->n_checkpoints; i++)
            add(table, reply->checkpoints[i]);
        output_table_take(table);
    }
    if (code == VERB_OK)
        protobuf_c_message_free_unpacked(&reply->base, NULL);
    connect_close(connect);
    return code;
}

const struct verb cmd_checkpoints = {.name = "checkpoints",
                                     .args = "JOB",
                                     .summary = "A job's checkpoints, newest first.",
                                     .examples = "  rondoctl checkpoints charlm\n"
                                                 "  rondoctl checkpoints 7 -o json\n",
                                     .rows = rows,
                                     .config_size = sizeof(struct config),
                                     .operands_min = 1,
                                     .operands_max = 1,
                                     .run = run};
