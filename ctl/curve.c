#include "ctl/curve.h"
#include "base/mem.h"
#include "ctl/output.h"
#include "ctl/plot.h"
#include "ctl/verb.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { POINTS_MAX = 2000, SERIES_MAX = 64 };

size_t curve_points(const Pb__Series *series)
{
    size_t values = series->n_values ? series->n_values : series->n_integers;
    return values < series->n_steps ? values : series->n_steps;
}

double curve_value(const Pb__Series *series, size_t i)
{
    return series->n_values ? series->values[i] : (double)series->integers[i];
}

static struct plot_series to_plot(const Pb__Series *series, char *name, size_t cap)
{
    size_t count = curve_points(series);
    double *x = mem_array(count + 1, sizeof(double)), *y = mem_array(count + 1, sizeof(double));
    for (size_t i = 0; i < count; i++) {
        x[i] = (double)series->steps[i];
        y[i] = curve_value(series, i);
    }
    if (series->rank > 0)
        snprintf(name, cap, "%.80s[%u]", series->name ? series->name : "", series->rank);
    else
        snprintf(name, cap, "%.80s", series->name ? series->name : "");
    return (struct plot_series){name, x, y, count};
}

bool curve_print(Pb__Series *const *series, size_t count, const char *title, size_t height)
{
    struct plot_series plots[SERIES_MAX];
    char names[SERIES_MAX][96];
    struct text out;
    size_t drawn = 0, width = term_columns(STDOUT_FILENO);
    struct plot_options options = {.width = width > 100 ? 100 : width,
                                   .height = height,
                                   .unicode = term_has_unicode(),
                                   .colour = term_has_colour(STDOUT_FILENO),
                                   .x_name = "step"};
    for (size_t i = 0; i < count && drawn < SERIES_MAX; i++)
        if (curve_points(series[i]) > 0) {
            plots[drawn] = to_plot(series[i], names[drawn], sizeof names[0]);
            drawn++;
        }
    text_init(&out, 0);
    if (drawn > 0) {
        if (title)
            printf("%s\n", title);
        plot_draw(plots, drawn, &options, &out);
        fputs(text_get(&out), stdout);
    }
    text_fini(&out);
    for (size_t i = 0; i < drawn; i++) {
        mem_free((void *)(uintptr_t)plots[i].x);
        mem_free((void *)(uintptr_t)plots[i].y);
    }
    return drawn > 0;
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
    curve_print(reply->series, reply->n_series, NULL, 15);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return VERB_OK;
}
