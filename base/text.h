/* text.h - a growing string or byte buffer, and small text helpers.
 *
 * Any thread, one at a time per buffer. Always NUL-terminated behind `len`. Growth past `max` marks
 * the buffer `full` and drops what does not fit, whole call by whole call; callers check once at
 * the end. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data; /* NULL until the first append; never NULL after */
    size_t len, cap, max;
    bool full;
};

#define TEXT_MAX_DEFAULT ((size_t)64 << 20)

void text_init(struct text *text, size_t max); /* max 0: TEXT_MAX_DEFAULT */
void text_fini(struct text *text);
void text_reset(struct text *text); /* keeps the memory */
void text_add(struct text *text, const char *piece);
void text_add_bytes(struct text *text, const void *bytes, size_t len);
void text_addf(struct text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *text_get(const struct text *text); /* "" when empty; loan until the next change */
char *text_take(struct text *text); /* caller frees with mem_free; the buffer is empty again */

bool text_is_utf8(const char *bytes,
                  size_t len); /* strict: no overlong forms, no surrogates, no NUL */
/* By bytes, the shorter one first where it begins the other: below, 0, above. */
int text_order(const char *a, size_t a_len, const char *b, size_t b_len);
/* Cuts it to at most max bytes, never inside a character. */
void text_cut(char *text, size_t max);
/* How many characters differ, are missing or too many, or changed places with the next; capped:
 * returns limit + 1 when larger. For "did you mean". */
size_t text_distance(const char *a, const char *b, size_t limit);
/* The nearest of names within a third of its length (at least 1); else the shortest that begins
 * with the word, of 3 characters or more; or NULL. */
const char *text_nearest(const char *word, const char *const *names, size_t count);
/* Whole string, decimal, in range. False leaves *out alone. */
bool text_to_i64(const char *text, int64_t min, int64_t max, int64_t *out);
bool text_to_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out);
void text_to_hex(const void *bytes, size_t len, char *out); /* out holds 2 * len + 1 */
bool text_from_hex(const char *hex, void *out, size_t len); /* exactly 2 * len digits */
/* "1.5 GiB", "312 ms", "2h05m": for tables. Thread: buffers are the caller's. */
void text_bytes(uint64_t bytes, char *out, size_t cap);
void text_duration_ms(uint64_t ms, char *out, size_t cap);
