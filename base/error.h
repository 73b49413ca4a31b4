/* error.h - how functions fail: a status with gRPC's number, and a sentence for people.
 *
 * Any thread. A function that can fail returns enum status and takes struct error *err last (NULL
 * is fine). Outputs are untouched on failure. Texts say what we were doing, outermost first: "load
 * checkpoint /v/x: open manifest: no such file". */
#pragma once
#include <stdarg.h>
#include <stddef.h>

enum status {
    STATUS_OK = 0,
    STATUS_CANCELLED = 1,
    STATUS_UNKNOWN = 2,
    STATUS_INVALID = 3,  /* the caller's input is wrong (gRPC INVALID_ARGUMENT) */
    STATUS_DEADLINE = 4, /* DEADLINE_EXCEEDED */
    STATUS_NOT_FOUND = 5,
    STATUS_EXISTS = 6,       /* ALREADY_EXISTS */
    STATUS_DENIED = 7,       /* PERMISSION_DENIED */
    STATUS_EXHAUSTED = 8,    /* RESOURCE_EXHAUSTED: a limit or a full disk */
    STATUS_PRECONDITION = 9, /* FAILED_PRECONDITION: the state does not allow it */
    STATUS_ABORTED = 10,     /* lost a race or a fence: a newer attempt or term exists */
    STATUS_OUT_OF_RANGE = 11,
    STATUS_UNIMPLEMENTED = 12,
    STATUS_INTERNAL = 13,
    STATUS_UNAVAILABLE = 14, /* try again later */
    STATUS_DATA_LOSS = 15,   /* bytes do not match their digest */
    STATUS_UNAUTHENTICATED = 16,
};

struct error {
    enum status code;
    char text[240];
};

#define MUST_CHECK              __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))

/* Fills *err (when not NULL) and returns st, so that `return error_set(err, ...)` reads well. Cuts
 * long texts. */
enum status error_set(struct error *err, enum status st, const char *fmt, ...) PRINTF_LIKE(3, 4);
#ifdef __clang_analyzer__ /* sees no other file: without this it follows paths that do not exist   \
                           */
#define error_set(err, st, ...) ((void)(error_set)((err), (st), __VA_ARGS__), (st))
#endif
/* Puts "<what>: " before the text that is there and returns its code (STATUS_UNKNOWN when err is
 * NULL or holds none: use error_set then). */
enum status error_wrap(struct error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* "not-found" and the like; never NULL. */
const char *status_name(enum status st);
