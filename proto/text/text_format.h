/* text_format.h - YAML to any message, and any message to JSON or YAML, by descriptor reflection.
 *
 * Any thread; no I/O but reading the named file. Bounded: 1 MiB of YAML, depth 32, 100,000 visited
 * nodes. Enum values are written by their proto names, accepted in any case. 64-bit integers print
 * as JSON strings; NaN and infinities as "NaN", "Infinity",
 * "-Infinity". Bytes as base64. Unset fields are left out; unset fields with a default too. */
#pragma once
#include "base/error.h"
#include "base/text.h"
#include "proto/text/enum.h"
#include "proto/text/message.h"
#include <protobuf-c/protobuf-c.h>

/* Problems gathers every error of the input, one line each: "job.yaml:6:15: field 'workers': ...".
 * STATUS_INVALID when there is any; *out is then untouched. Free *out with
 * protobuf_c_message_free_unpacked(m, NULL). Short forms: a message {name, value} list (StringPair)
 * may be a mapping; durations `5s`, `10m`, `2h` and sizes `4GiB` are accepted for fields ending in
 * _ms, _s, _mib. */
enum status text_format_parse(const char *file_name, const char *yaml, size_t len,
                              const ProtobufCMessageDescriptor *type, ProtobufCMessage **out,
                              struct text *problems) MUST_CHECK;
enum status text_format_load(const char *path, const ProtobufCMessageDescriptor *type,
                             ProtobufCMessage **out, struct text *problems) MUST_CHECK;
/* `roles.0.workers=4`, `checkpoint.every_steps=100`: as if written in the file; problems name the
 * assignment. */
enum status text_format_set(ProtobufCMessage *message, const char *assignment,
                            struct text *problems) MUST_CHECK;

enum text_format_style { TEXT_FORMAT_COMPACT, TEXT_FORMAT_PRETTY };
void text_format_json(const ProtobufCMessage *message, enum text_format_style style,
                      struct text *out);
/* {"jobs":[...]}-like envelopes are messages too: use the reply messages. */
void text_format_yaml(const ProtobufCMessage *message, struct text *out);
