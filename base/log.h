/* log.h - one line an event: stable dotted name, then typed key=value.
 *
 * Any thread; a line is one write. Format: 2026-01-31T12:00:00.123456Z info job.state job=7
 * from=QUEUED to=STARTING Same keys everywhere: job node attempt role rank st err. Values with
 * spaces or quotes are quoted and escaped; secrets are never passed. `base proto scheduler
 * checkpoint release` never log. */
#pragma once
#include "base/error.h"
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
struct log_pair {
    const char *key;
    enum { LOG_PAIR_TEXT, LOG_PAIR_INT } kind;
    const char *text;
    int64_t number;
};

static inline struct log_pair log_str(const char *key, const char *text)
{
    return (struct log_pair){key, LOG_PAIR_TEXT, text ? text : "", 0};
}
static inline struct log_pair log_int(const char *key, int64_t number)
{
    return (struct log_pair){key, LOG_PAIR_INT, NULL, number};
}
static inline struct log_pair log_err(const struct error *err)
{
    return (struct log_pair){"err", LOG_PAIR_TEXT, err ? err->text : "", 0};
}

/* Before other threads; fd 2 by default; -1: silent. Says "log.open program=... pid=..." at info.
 */
void log_setup(const char *program, enum log_level least, int fd);
/* The simulator redirects lines into its trace. NULL restores the descriptor. A sink gets the line
 * without time and newline: the simulator's time is its own. */
void log_set_sink(void (*sink)(void *arg, const char *line), void *arg);
void log_write(enum log_level level, const char *event, const struct log_pair *pairs, size_t count);

#define LOG_PAIRS_(...)                                                                            \
    (const struct log_pair[]){__VA_ARGS__},                                                        \
        sizeof((struct log_pair[]){__VA_ARGS__}) / sizeof(struct log_pair)
#define log_debug(event, ...) log_write(LOG_DEBUG, event, LOG_PAIRS_(__VA_ARGS__))
#define log_info(event, ...)  log_write(LOG_INFO, event, LOG_PAIRS_(__VA_ARGS__))
#define log_warn(event, ...)  log_write(LOG_WARN, event, LOG_PAIRS_(__VA_ARGS__))
#define log_error(event, ...) log_write(LOG_ERROR, event, LOG_PAIRS_(__VA_ARGS__))
