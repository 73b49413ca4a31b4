#include "ctl/curve.h"
#include "base/mem.h"
#include "ctl/output.h"
#include "ctl/plot.h"
#include "ctl/verb.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { POINTS_MAX = 2000, LINES_MAX = 64 };

size_t curve_points(const Pb__Series *series)
{
    size_t values = series->n_values ? series->n_values : series->n_integers;
    return values < series->n_steps ? values : series->n_steps;
}

double curve_value(const Pb__Series *series, size_t i)
{
    return series->n_values ? series->values[i] : (double)series->integers[i];
}

/* One line to draw; attempts that follow each other are one line. */
struct line {
    const Pb__Series *first;
    char name[96];
    double *x, *y;
    size_t count;
};

static bool is_same_line(const struct line *line, const Pb__Series *series)
{
    const char *name = series->name ? series->name : "", *role = series->role ? series->role : "";
    return strcmp(line->first->name ? line->first->name : "", name) == 0 &&
           strcmp(line->first->role ? line->first->role : "", role) == 0 &&
           line->first->rank == series->rank;
}

static void append(struct line *line, const Pb__Series *series)
{
    size_t count = curve_points(series);
    line->x = mem_resize(line->x, line->count + count, sizeof(double));
    line->y = mem_resize(line->y, line->count + count, sizeof(double));
    for (size_t i = 0; i < count; i++) {
        line->x[line->count + i] = (double)series->steps[i];
        line->y[line->count + i] = curve_value(series, i);
    }
    line->count += count;
}

static struct line *find_line(struct line *lines, size_t *count, const Pb__Series *series)
{
    for (size_t i = 0; i < *count; i++)
        if (is_same_line(&lines[i], series))
            return &lines[i];
    if (*count == LINES_MAX)
        return NULL;
    struct line *line = &lines[(*count)++];
    *line = (struct line){.first = series};
    snprintf(line->name, sizeof line->name, series->rank > 0 ? "%.80s[%u]" : "%.80s",
             series->name ? series->name : "", series->rank);
    return line;
}

static void draw(const struct line *lines, size_t count, size_t height)
{
    struct plot_series plots[LINES_MAX];
    struct text out;
    size_t width = term_columns(STDOUT_FILENO);
    struct plot_options options = {.width = width > 100 ? 100 : width,
                                   .height = height,
                                   .unicode = term_has_unicode(),
                                   .colour = term_has_colour(STDOUT_FILENO),
                                   .x_name = "step"};
    for (size_t i = 0; i < count; i++)
        plots[i] = (struct plot_series){lines[i].name, lines[i].x, lines[i].y, lines[i].count};
    text_init(&out, 0);
    plot_draw(plots, count, &options, &out);
    fputs(text_get(&out), stdout);
    text_fini(&out);
}

bool curve_print(Pb__Series *const *series, size_t count, size_t height)
{
    struct line lines[LINES_MAX];
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        struct line *line =
            curve_points(series[i]) > 0 ? find_line(lines, &found, series[i]) : NULL;
        if (line)
            append(line, series[i]);
    }
    if (found > 0)
        draw(lines, found, height);
    for (size_t i = 0; i < found; i++) {
        mem_free(lines[i].x);
        mem_free(lines[i].y);
    }
    return found > 0;
}

int curve_show(struct connect *connect, int64_t job, const char *name)
{
    Pb__MetricsRequest request = PB__METRICS_REQUEST__INIT;
    char *names[] = {(char *)(uintptr_t)name};
    Pb__MetricsReply *reply;
    request.has_job = request.has_points_max = 1;
    request.job = job;
    request.points_max = POINTS_MAX;
    request.names = names;
    request.n_names = name ? 1 : 0;
    int code = connect_ask(connect, "Metrics", &request.base, (ProtobufCMessage **)&reply);
    if (code != VERB_OK)
        return code;
    curve_print(reply->series, reply->n_series, 15);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return VERB_OK;
}
