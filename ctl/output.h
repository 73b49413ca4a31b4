/* output.h - what verbs print to stdout, and errors to stderr.
 *
 * Loop thread. JSON and YAML are the daemon's reply messages as text_format prints them, which is
 * the stable form; tables are for people and may change. */
#pragma once
#include "base/error.h"
#include "base/text.h"
#include "ctl/table.h"
#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

enum output_format { OUTPUT_TABLE, OUTPUT_JSON, OUTPUT_YAML };

/* False: says on stderr which are allowed. */
bool output_parse(const char *name, enum output_format *out);
/* Not for OUTPUT_TABLE. */
void output_message(enum output_format format, const ProtobufCMessage *message);
/* Prints the table, no wider than 100 columns on anything but a wider terminal, and frees it. */
void output_table_take(struct table *table);
/* One line "rondoctl: ..." to stderr; control characters in it are shown as '?'. */
void output_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Text that came from elsewhere, line by line, without control characters but tab. */
void output_text(const char *indent, const char *text);
/* "3m12s" since the wall time, "-" for 0. */
void output_age(int64_t at_us, char *out, size_t cap);
/* "2026-01-31 12:00:00" local time, "-" for 0. */
void output_time(int64_t at_us, char *out, size_t cap);
/* Ends the program's output; false when stdout took not all of it. */
bool output_flush(void);
