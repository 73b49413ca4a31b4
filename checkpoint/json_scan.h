/* json_scan.h - strict JSON, pulled piece by piece out of memory.
 *
 * For formats that we define and for safetensors headers: RFC 8259 without any leniency, valid
 * UTF-8, no lone surrogates, at most 128 levels. Nothing is allocated but strings that hold
 * escapes, in the caller's arena. One thread a scan. The first failure sticks: everything after it
 * says false, and json_scan_end tells what and at which byte.
 *
 *     json_scan_object(&scan);
 *     while (json_scan_key(&scan, &key, &len))
 *         if (json_scan_is(key, len, "shape")) ... else json_scan_fail(&scan, "unknown key"); */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_SCAN_DEPTH_MAX 128

struct json_scan {
    const unsigned char *begin, *at, *end;
    struct arena *arena; /* for strings with escapes; NULL: those are a failure */
    uint32_t depth;
    bool fresh; /* right behind an opening bracket: no comma is due */
    bool failed;
    struct error error;
};

void json_scan_init(struct json_scan *scan, const void *bytes, size_t len, struct arena *arena);
/* Opens what comes next; false (a failure) when it is something else. */
bool json_scan_object(struct json_scan *scan);
bool json_scan_array(struct json_scan *scan);
/* Next key of the innermost object; false: its end (closed), or a failure. The text is a loan of
 * the input or of the arena, not NUL-terminated, and may hold NUL. */
bool json_scan_key(struct json_scan *scan, const char **key, size_t *len);
/* Is there one more item in the innermost array? False: its end (closed), or a failure. */
bool json_scan_item(struct json_scan *scan);
bool json_scan_string(struct json_scan *scan, const char **out, size_t *len);
/* Digits alone, no sign, fraction, exponent or leading zero, below 2^64. */
bool json_scan_u64(struct json_scan *scan, uint64_t *out);
/* Takes it when it is there; not being there is no failure. */
bool json_scan_null(struct json_scan *scan);
/* First byte of what comes next behind white space; 0: nothing does. */
unsigned char json_scan_peek(struct json_scan *scan);
bool json_scan_skip(struct json_scan *scan); /* a value of any kind, checked all the same */
/* Only white space may follow. The outcome of the whole scan; text: "byte 17: ...". */
enum status json_scan_end(struct json_scan *scan, struct error *err) MUST_CHECK;
/* Sticks the caller's complaint at the present place. Always false. */
bool json_scan_fail(struct json_scan *scan, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool json_scan_is(const char *text, size_t len, const char *word);
