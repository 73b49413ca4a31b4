#include "ctl/written.h"
#include "checkpoint/json_text.h"
#include "ctl/verb.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void say_json(const struct written *written)
{
    struct text target;
    text_init(&target, 0);
    json_text_string(&target, written->target, strlen(written->target));
    printf("{\"%s\": %s, \"bytes\": \"%" PRIu64 "\", \"tensors\": \"%" PRIu64 "\"", written->what,
           text_get(&target), written->bytes, written->tensors);
    if (written->files)
        printf(", \"files\": \"%" PRIu64 "\"", written->files);
    if (written->ranks)
        printf(", \"ranks\": \"%" PRIu64 "\"", written->ranks);
    if (written->digest[0])
        printf(", \"manifest_digest\": \"%s\"", written->digest);
    printf("}\n");
    text_fini(&target);
}

int written_say(const struct written *written)
{
    char size[32];
    if (written->format != OUTPUT_TABLE) {
        say_json(written);
        return VERB_OK;
    }
    text_bytes(written->bytes, size, sizeof size);
    printf("%s: %" PRIu64 " tensor%s, %s", written->what, written->tensors,
           written->tensors == 1 ? "" : "s", size);
    if (written->files)
        printf(", %" PRIu64 " file%s", written->files, written->files == 1 ? "" : "s");
    if (written->ranks)
        printf(", %" PRIu64 " rank%s", written->ranks, written->ranks == 1 ? "" : "s");
    printf(": ");
    output_text("", written->target);
    return VERB_OK;
}
