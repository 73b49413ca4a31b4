/* error.c - statuses with gRPC's numbers, and texts that grow outwards. */
#include "base/error.h"
#include <stdio.h>
#include <string.h>

/* Cuts a text that did not fit so that it ends in "..." and never inside a UTF-8 sequence. */
static void error_mark_cut(char *text, size_t cap)
{
    size_t end = cap - 4;
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    memcpy(text + end, "...", 4);
}

static void error_format(char *out, size_t cap, const char *fmt, va_list args)
{
    int need = vsnprintf(out, cap, fmt, args);
    if (need < 0)
        out[0] = '\0';
    else if ((size_t)need >= cap)
        error_mark_cut(out, cap);
}

#undef error_set /* a macro for the analyzer */
enum status error_set(struct error *err, enum status st, const char *fmt, ...)
{
    va_list args;
    struct error made = {.code = st};

    if (!err)
        return st;
    va_start(args, fmt);
    error_format(made.text, sizeof(made.text), fmt, args); /* fmt may print err->text itself */
    va_end(args);
    *err = made;
    return st;
}

enum status error_wrap(struct error *err, const char *fmt, ...)
{
    va_list args;
    char what[sizeof(err->text)];
    char joined[2 * sizeof(err->text) + 3];

    if (!err || err->code == STATUS_OK)
        return STATUS_UNKNOWN;
    va_start(args, fmt);
    error_format(what, sizeof(what), fmt, args);
    va_end(args);
    int need = snprintf(joined, sizeof(joined), "%s: %s", what, err->text);
    memcpy(err->text, joined, sizeof(err->text));
    if (need < 0 || (size_t)need >= sizeof(err->text)) {
        err->text[sizeof(err->text) - 1] = '\0';
        error_mark_cut(err->text, sizeof(err->text));
    }
    return err->code;
}

const char *status_name(enum status st)
{
    static const char *const names[] = {
        [STATUS_OK] = "ok",
        [STATUS_CANCELLED] = "cancelled",
        [STATUS_UNKNOWN] = "unknown",
        [STATUS_INVALID] = "invalid",
        [STATUS_DEADLINE] = "deadline",
        [STATUS_NOT_FOUND] = "not-found",
        [STATUS_EXISTS] = "exists",
        [STATUS_DENIED] = "denied",
        [STATUS_EXHAUSTED] = "exhausted",
        [STATUS_PRECONDITION] = "precondition",
        [STATUS_ABORTED] = "aborted",
        [STATUS_OUT_OF_RANGE] = "out-of-range",
        [STATUS_UNIMPLEMENTED] = "unimplemented",
        [STATUS_INTERNAL] = "internal",
        [STATUS_UNAVAILABLE] = "unavailable",
        [STATUS_DATA_LOSS] = "data-loss",
        [STATUS_UNAUTHENTICATED] = "unauthenticated",
    };
    if ((size_t)st >= sizeof(names) / sizeof(names[0]))
        return "unknown";
    return names[st];
}
