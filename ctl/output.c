#include "ctl/output.h"
#include "base/mem.h"
#include "proto/text/text_format.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

bool output_parse(const char *name, enum output_format *out)
{
    static const char *const names[] = {"table", "json", "yaml"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strcmp(names[i], name) == 0) {
            *out = (enum output_format)i;
            return true;
        }
    const char *near = text_nearest(name, names, COUNT_OF(names));
    output_error("--output: '%.40s' is none of table, json, yaml%s%s%s", name,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return false;
}

void output_message(enum output_format format, const ProtobufCMessage *message)
{
    struct text out;
    text_init(&out, (size_t)512 << 20);
    if (format == OUTPUT_YAML)
        text_format_yaml(message, &out);
    else
        text_format_json(message, TEXT_FORMAT_PRETTY, &out);
    if (out.full)
        output_error("the answer is too large to print; narrow the question");
    else
        fwrite(text_get(&out), 1, out.len, stdout);
    text_fini(&out);
}

void output_table_take(struct table *table)
{
    struct text out;
    size_t width = term_columns(STDOUT_FILENO);
    if (!term_is_tty(STDOUT_FILENO) || width < 60)
        width = 100;
    text_init(&out, 0);
    table_print(table, width, term_has_colour(STDOUT_FILENO), &out);
    fwrite(text_get(&out), 1, out.len, stdout);
    text_fini(&out);
    table_destroy(table);
}

void output_error(const char *fmt, ...)
{
    char line[2048], clean[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    term_fit(line, sizeof line, clean, sizeof clean);
    fflush(stdout);
    fprintf(stderr, "rondoctl: %s\n", clean);
}

void output_text(const char *indent, const char *text)
{
    char line[1024], clean[1100];
    while (*text) {
        size_t len = strcspn(text, "\n"), take = len < sizeof line - 1 ? len : sizeof line - 1;
        memcpy(line, text, take);
        line[take] = '\0';
        for (char *c = line; *c; c++)
            if (*c == '\t')
                *c = ' ';
        term_fit(line, sizeof line, clean, sizeof clean);
        printf("%s%s\n", indent, clean);
        text += len + (text[len] == '\n');
    }
}

void output_age(int64_t at_us, char *out, size_t cap)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    int64_t us = (int64_t)now.tv_sec * 1000000 + now.tv_usec - at_us;
    if (at_us <= 0)
        snprintf(out, cap, "-");
    else if (us < 60000000) /* another machine's clock may be ahead of ours */
        snprintf(out, cap, "%llds", us > 0 ? (long long)us / 1000000 : 0);
    else
        text_duration_ms((uint64_t)us / 1000, out, cap);
}

void output_time(int64_t at_us, char *out, size_t cap)
{
    time_t seconds = (time_t)(at_us / 1000000);
    struct tm local;
    if (at_us <= 0 || !localtime_r(&seconds, &local) ||
        strftime(out, cap, "%Y-%m-%d %H:%M:%S", &local) == 0)
        snprintf(out, cap, "-");
}

bool output_flush(void)
{
    return fflush(stdout) == 0 && !ferror(stdout);
}
