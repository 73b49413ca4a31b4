/* fuzz_text_format.c - any bytes as a job file. What is accepted must come back the same through
 * YAML and JSON, pass or fail the job check, and take its defaults. */
#include "base/mem.h"
#include "proto/text/job_check.h"
#include "proto/text/job_file.h"
#include "proto/text/text_format.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void come_back(const ProtobufCMessage *message, const struct text *out)
{
    ProtobufCMessage *back = NULL;
    struct text problems;
    text_init(&problems, 0);
    if (out->len < 1 << 20 && text_format_parse("back", text_get(out), out->len,
                                                message->descriptor, &back, &problems) != STATUS_OK)
        abort();
    if (back) {
        if (protobuf_c_message_get_packed_size(back) != protobuf_c_message_get_packed_size(message))
            abort();
        protobuf_c_message_free_unpacked(back, NULL);
    }
    text_fini(&problems);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text problems, out;
    ProtobufCMessage *message = NULL;
    Pb__JobSpec *spec = NULL;
    text_init(&problems, 0);
    text_init(&out, 0);
    struct job_file file = {.name = "f", .yaml = (const char *)data, .len = size};
    if (job_file_parse(&file, &spec, &problems) == STATUS_OK) {
        job_check_fill(spec);
        protobuf_c_message_free_unpacked(&spec->base, NULL);
    }
    if (text_format_parse("f", (const char *)data, size, &pb__job__descriptor, &message,
                          &problems) == STATUS_OK) {
        text_format_yaml(message, &out);
        come_back(message, &out);
        text_reset(&out);
        text_format_json(message, TEXT_FORMAT_PRETTY, &out);
        come_back(message, &out);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    text_fini(&problems);
    text_fini(&out);
    return 0;
}
