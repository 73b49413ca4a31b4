/* job_file.h - a YAML job file to a checked JobSpec, every problem with its place in the file.
 *
 * Any thread; no I/O. What is written wrong (text_format) and what is meant wrong (job_check) are
 * reported in one run: "job.yaml:6:15: field 'roles.0.workers': 0 is out of range 1..100000". */
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
};

/* Free *out with protobuf_c_message_free_unpacked. A code path that is still to be packed is not a
 * problem here. */
enum status job_file_parse(const struct job_file *file, Pb__JobSpec **out,
                           struct text *problems) MUST_CHECK;
