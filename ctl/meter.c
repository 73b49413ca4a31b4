#include "ctl/meter.h"
#include "ctl/output.h"
#include "ctl/term.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SHOW_MS = 200, RATE_MS = 500 };

static atomic_bool stop;

static void note_interrupt(int number)
{
    (void)number;
    atomic_store(&stop, true);
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void meter_line(const char *what, uint64_t done, uint64_t total, int64_t ms, struct text *out)
{
    char is[32], of[32], rate[32], left[32];
    uint64_t second = ms > 0 ? (uint64_t)((double)done * 1000.0 / (double)ms) : 0;
    text_bytes(done, is, sizeof is);
    text_bytes(total, of, sizeof of);
    text_addf(out, "%s %s", what, is);
    if (total > 0)
        text_addf(out, " of %s  %u%%", of,
                  (unsigned)(done >= total ? 100.0 : 100.0 * (double)done / (double)total));
    if (ms < RATE_MS || second == 0)
        return;
    text_bytes(second, rate, sizeof rate);
    text_addf(out, "  %s/s", rate);
    if (total <= done)
        return;
    text_duration_ms((uint64_t)((double)(total - done) * 1000.0 / (double)second), left,
                     sizeof left);
    text_addf(out, "  %s left", left);
}

static void erase(struct meter *meter)
{
    if (meter->shown)
        fputs("\r\x1b[K", stderr);
    meter->shown = false;
}

static void moved(void *arg, uint64_t bytes)
{
    struct meter *meter = arg;
    struct text line;
    char fitted[400];
    int64_t now = now_ms();
    meter->done += bytes;
    if (meter->also)
        meter->also(meter->arg);
    if (!meter->tty || now - meter->shown_ms < SHOW_MS)
        return;
    meter->shown_ms = now;
    text_init(&line, 0);
    meter_line(meter->what, meter->done, meter->total, now - meter->began_ms, &line);
    erase(meter);
    term_fit(text_get(&line), term_columns(STDERR_FILENO) - 1, fitted, sizeof fitted);
    fputs(fitted, stderr);
    fflush(stderr);
    meter->shown = true;
    text_fini(&line);
}

static void warn(void *arg, const char *sentence)
{
    erase(arg);
    output_error("%s", sentence);
}

void meter_begin(struct meter *meter, const char *what, uint64_t total)
{
    struct sigaction action, old;
    *meter = (struct meter){.watcher = {moved, warn, meter, &stop},
                            .what = what,
                            .total = total,
                            .began_ms = now_ms(),
                            .tty = term_is_tty(STDERR_FILENO)};
    memset(&action, 0, sizeof action);
    if (sigaction(SIGINT, NULL, &old) != 0 || old.sa_handler == SIG_IGN)
        return;
    action.sa_handler = note_interrupt;
    action.sa_flags = (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
}

void meter_also(struct meter *meter, void (*also)(void *arg), void *arg)
{
    meter->also = also;
    meter->arg = arg;
}

void meter_end(struct meter *meter)
{
    erase(meter);
}

void meter_last_word(const char *what)
{
    if (!atomic_load(&stop))
        return;
    output_error("%s: interrupted; nothing is left of it", what);
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
}
