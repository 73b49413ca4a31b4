/* written.h - says what a verb has written, as a line or as JSON. Loop thread. */
#pragma once
#include "ctl/output.h"
#include <stdint.h>

struct written {
    enum output_format format;
    const char *what, *target;             /* "exported", a path */
    uint64_t bytes, tensors, files, ranks; /* 0: not said */
    char digest[65];                       /* of a manifest; "": there is none */
};
/* VERB_OK. */
int written_say(const struct written *written);
