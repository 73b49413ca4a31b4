/* job_file.h - a YAML job file to a checked JobSpec, every problem with its place in the file.
 *
 * Any thread; no I/O but the caller's. What is written wrong (text_format), what is meant wrong
 * (job_check) and code that cannot be packed are reported in one run, by line and column:
 * "job.yaml:6:15: field 'roles.0.workers': 0 is out of range 1..100000". */
#pragma once
#include "base/error.h"
#include "base/text.h"
#include "proto/pb.h"

struct job_file {
    const char *name; /* for problems */
    const char *yaml;
    size_t len;
    const char *const *sets; /* `roles.0.workers=4`, applied behind the file */
    size_t sets_count;
    /* Packs code.path and sets code->digest; NULL: that is done later. */
    enum status (*pack)(void *arg, Pb__Code *code, struct error *err);
    void *pack_arg;
};

/* Free *out with protobuf_c_message_free_unpacked. A code path that is still to be packed is not a
 * problem here. */
enum status job_file_parse(const struct job_file *file, Pb__JobSpec **out,
                           struct text *problems) MUST_CHECK;
