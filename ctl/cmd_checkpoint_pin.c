/* cmd_checkpoint_pin.c - keeps a checkpoint whatever retention says, and lets it go. Loop thread.
 */
#include "base/mem.h"
#include "ctl/checkpoint_at.h"
#include "ctl/cmd.h"
#include "ctl/output.h"
#include <inttypes.h>
#include <stdio.h>

struct config {
    struct checkpoint_flags flags;
    char *note;
};

static const struct option pin_rows[] = {
    CHECKPOINT_ROWS,
    {"note", OPT_TEXT, offsetof(struct config, note), NULL, 0, 200, "Why it is kept."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};
static const struct option unpin_rows[] = {CHECKPOINT_ROWS, {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static int pin_one(struct checkpoint_at_source *source, const char *word, bool unpin,
                   const char *note, enum output_format format)
{
    Pb__PinCheckpointRequest request = PB__PIN_CHECKPOINT_REQUEST__INIT;
    struct checkpoint_at at;
    char id[CONNECT_ID_SIZE];
    Pb__CheckpointReply *reply;
    int code = checkpoint_at_find(source, word, &at);
    if (code != VERB_OK)
        return code;
    connect_request_id(source->connect, id);
    request.request_id = id;
    request.has_checkpoint = request.has_unpin = 1;
    request.checkpoint = at.row->id;
    request.unpin = unpin;
    request.note = (char *)(uintptr_t)note;
    code =
        connect_ask(source->connect, "PinCheckpoint", &request.base, (ProtobufCMessage **)&reply);
    if (code == VERB_OK && format != OUTPUT_TABLE)
        output_message(format, &reply->base);
    else if (code == VERB_OK)
        printf("checkpoint %" PRId64 " (job %" PRId64 ", step %" PRId64 ") is %s\n", at.row->id,
               at.row->job, at.row->step, unpin ? "pinned no more" : "pinned");
    if (code == VERB_OK)
        protobuf_c_message_free_unpacked(&reply->base, NULL);
    checkpoint_at_fini(&at);
    return code;
}

static int run(const struct checkpoint_flags *flags, const char *note, bool unpin, int argc,
               char **argv)
{
    struct checkpoint_at_source source = {.flags = flags};
    enum output_format format;
    int worst = VERB_OK;
    if (!output_parse(flags->connect.output, &format))
        return VERB_USAGE;
    for (int i = 0; i < argc; i++)
        if (*flags->vault || checkpoint_at_is_place(argv[i])) {
            output_error("%s: pins are kept by the daemon; give an id or JOB@STEP, no --vault",
                         argv[i]);
            return VERB_USAGE;
        }
    for (int i = 0; i < argc; i++) {
        int code = pin_one(&source, argv[i], unpin, note, format);
        worst = code > worst ? code : worst;
    }
    checkpoint_at_end(&source);
    return worst;
}

static int run_pin(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    return run(&config->flags, config->note, false, argc, argv);
}

static int run_unpin(const void *arg, int argc, char **argv)
{
    return run(arg, NULL, true, argc, argv);
}

const struct verb cmd_checkpoint_pin = {.name = "checkpoint pin",
                                        .args = "CHECKPOINT...",
                                        .summary = "Keeps checkpoints, whatever retention says.",
                                        .examples =
                                            "  rondoctl checkpoint pin 12 --note 'the paper'\n"
                                            "  rondoctl checkpoint pin charlm@120\n",
                                        .rows = pin_rows,
                                        .config_size = sizeof(struct config),
                                        .operands_min = 1,
                                        .operands_max = -1,
                                        .run = run_pin};

const struct verb cmd_checkpoint_unpin = {.name = "checkpoint unpin",
                                          .args = "CHECKPOINT...",
                                          .summary = "Leaves checkpoints to retention again.",
                                          .examples = "  rondoctl checkpoint unpin charlm@120\n",
                                          .rows = unpin_rows,
                                          .config_size = sizeof(struct checkpoint_flags),
                                          .operands_min = 1,
                                          .operands_max = -1,
                                          .run = run_unpin};
