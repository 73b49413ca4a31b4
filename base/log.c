/* log.c - formats one line in a buffer of its own and hands it over in one write. */
#include "base/log.h"
#include "base/text.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A pipe takes up to 4096 bytes in one piece, so lines of several processes never mix. */
#define LOG_LINE_MAX  ((size_t)4096)
#define LOG_VALUE_MAX ((size_t)1024)

static struct {
    enum log_level least;
    int fd;
    void (*sink)(void *arg, const char *line);
    void *sink_arg;
    pthread_mutex_t lock; /* over the sink: one line at a time */
} log_state = {.least = LOG_INFO, .fd = 2, .lock = PTHREAD_MUTEX_INITIALIZER};

struct log_line {
    char data[LOG_LINE_MAX];
    size_t len;
};

static void log_add(struct log_line *line, const char *bytes, size_t len)
{
    size_t room = LOG_LINE_MAX - 2 - line->len; /* newline and NUL always fit */
    if (len > room)
        len = room;
    memcpy(line->data + line->len, bytes, len);
    line->len += len;
}

static void log_add_text(struct log_line *line, const char *text)
{
    log_add(line, text, strlen(text));
}

static bool log_is_plain(const char *text)
{
    if (!*text)
        return false;
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || *text == 0x7f || strchr("\"'\\=", *text))
            return false;
    return true;
}

/* One escaped character: control characters and broken UTF-8 never reach a terminal. */
static void log_add_escaped(struct log_line *line, char c, bool utf8)
{
    char hex[8];

    if (c == '"' || c == '\\') {
        log_add(line, (const char[]){'\\', c}, 2);
    } else if (c == '\n') {
        log_add_text(line, "\\n");
    } else if (c == '\t') {
        log_add_text(line, "\\t");
    } else if ((unsigned char)c < ' ' || c == 0x7f || (c & 0x80 && !utf8)) {
        snprintf(hex, sizeof(hex), "\\x%02x", (unsigned)(unsigned char)c);
        log_add_text(line, hex);
    } else {
        log_add(line, &c, 1);
    }
}

static void log_add_value(struct log_line *line, const char *text)
{
    size_t len = strnlen(text, LOG_VALUE_MAX + 1);
    bool cut = len > LOG_VALUE_MAX;
    bool utf8 = text_is_utf8(text, strlen(text));

    if (!cut && utf8 && log_is_plain(text)) {
        log_add(line, text, len);
        return;
    }
    if (cut)
        len = LOG_VALUE_MAX;
    while (cut && len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
        len--; /* not inside a UTF-8 sequence */
    log_add_text(line, "\"");
    for (size_t i = 0; i < len; i++)
        log_add_escaped(line, text[i], utf8);
    log_add_text(line, cut ? "...\"" : "\"");
}

static void log_add_time(struct log_line *line)
{
    struct timespec now;
    struct tm utc;
    char date[32], rest[32];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(rest, sizeof(rest), ".%06ldZ ", now.tv_nsec / 1000);
    log_add_text(line, date);
    log_add_text(line, rest);
}

static void log_add_pair(struct log_line *line, const struct log_pair *pair)
{
    char number[24];

    log_add_text(line, " ");
    log_add_text(line, pair->key);
    log_add_text(line, "=");
    if (pair->kind == LOG_PAIR_INT) {
        snprintf(number, sizeof(number), "%lld", (long long)pair->number);
        log_add_text(line, number);
    } else {
        log_add_value(line, pair->text);
    }
}

static void log_deliver(struct log_line *line)
{
    if (log_state.sink) {
        pthread_mutex_lock(&log_state.lock);
        line->data[line->len] = '\0';
        log_state.sink(log_state.sink_arg, line->data);
        pthread_mutex_unlock(&log_state.lock);
        return;
    }
    line->data[line->len++] = '\n';
    if (write(log_state.fd, line->data, line->len) < 0)
        return; /* nowhere to say it: a lost line must not stop the program */
}

void log_setup(const char *program, enum log_level least, int fd)
{
    log_state.least = least;
    log_state.fd = fd;
    log_info("log.open", log_str("program", program), log_int("pid", getpid()));
}

void log_set_sink(void (*sink)(void *arg, const char *line), void *arg)
{
    log_state.sink = sink;
    log_state.sink_arg = arg;
}

void log_write(enum log_level level, const char *event, const struct log_pair *pairs, size_t count)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    struct log_line line;

    if (level < log_state.least || (log_state.fd < 0 && !log_state.sink))
        return;
    line.len = 0;
    if (!log_state.sink)
        log_add_time(&line);
    log_add_text(&line, names[level]);
    log_add_text(&line, " ");
    log_add_text(&line, event);
    for (size_t i = 0; i < count; i++)
        log_add_pair(&line, &pairs[i]);
    log_deliver(&line);
}
