/* error_file.h - the last words of a worker: torch's error file, or what it wrote to stderr.
 *
 * Pure. Bytes of a worker: bounded, any content; what comes out is valid UTF-8. */
#pragma once
#include "base/text.h"
#include <stdbool.h>

#define ERROR_FILE_TRACEBACK_MAX ((size_t)16 << 10)
#define ERROR_FILE_MESSAGE_MAX   ((size_t)1000)

struct error_words {
    char *message, *traceback; /* owned; NULL: none */
};
void error_words_fini(struct error_words *words);
/* TORCHELASTIC_ERROR_FILE: {"message": {"message": ..., "extraInfo": {"py_callstack": ...}}} or
 * {"message": "..."}. False: not such a file. */
bool error_file_parse(const char *bytes, size_t len, struct error_words *out);
/* The last line, and the last Python traceback, of the end of stderr. */
bool error_file_stderr(const char *bytes, size_t len, struct error_words *out);
/* Replaces what is not UTF-8 or not printable by '?', keeps line ends. Caller frees. */
char *error_file_clean(const char *bytes, size_t len, size_t max);
