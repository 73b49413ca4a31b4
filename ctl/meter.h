/* meter.h - how far a long read or write is, on a terminal; and Ctrl-C that ends it cleanly.
 *
 * One at a time; the line is on stderr, rewritten a few times a second, and only where that is a
 * terminal. The first Ctrl-C makes the work stop and clean up (STATUS_CANCELLED), the second ends
 * the program. */
#pragma once
#include "base/text.h"
#include "checkpoint/watcher.h"
#include <stdbool.h>

struct meter {
    struct watcher watcher; /* give this to the work */
    const char *what;       /* "verify" */
    uint64_t done, total;   /* bytes; total 0: unknown */
    int64_t began_ms, shown_ms;
    bool shown, tty;
    void (*also)(void *arg);
    void *arg;
};

void meter_begin(struct meter *meter, const char *what, uint64_t total);
/* Called as bytes move, in the thread of the work. */
void meter_also(struct meter *meter, void (*also)(void *arg), void *arg);
void meter_end(struct meter *meter); /* takes the line away */
/* At the very end of a verb, when all is cleaned up: where Ctrl-C was pressed, the signal ends the
 * program now. */
void meter_last_word(const char *what);
/* "verify 1.5 GiB of 3 GiB  50%  1.2 GiB/s  1s left". Pure. */
void meter_line(const char *what, uint64_t done, uint64_t total, int64_t ms, struct text *out);
