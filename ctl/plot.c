#include "ctl/plot.h"
#include "base/mem.h"
#include "ctl/term.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL = 10, MARGIN = LABEL + 2 };

struct canvas {
    size_t width, height;  /* in cells */
    size_t dots_x, dots_y; /* dots a cell */
    uint8_t *bits;         /* braille dots of each cell */
    uint8_t *owner;        /* series + 1 that drew there last */
    double x_min, x_max, y_min, y_max;
};

static const char letters[PLOT_SERIES_MAX] = {'*', 'o', '+', 'x', '#', '@'};
static const enum term_paint paints[PLOT_SERIES_MAX] = {TERM_CYAN, TERM_YELLOW,  TERM_GREEN,
                                                        TERM_RED,  TERM_MAGENTA, TERM_BLUE};

/* False when nothing is finite. */
static bool find_range(struct canvas *canvas, const struct plot_series *series, size_t count)
{
    bool any = false;
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < series[s].count; i++) {
            double x = series[s].x[i], y = series[s].y[i];
            if (!isfinite(x) || !isfinite(y))
                continue;
            canvas->x_min = !any || x < canvas->x_min ? x : canvas->x_min;
            canvas->x_max = !any || x > canvas->x_max ? x : canvas->x_max;
            canvas->y_min = !any || y < canvas->y_min ? y : canvas->y_min;
            canvas->y_max = !any || y > canvas->y_max ? y : canvas->y_max;
            any = true;
        }
    if (any && !(canvas->y_max > canvas->y_min)) { /* a flat line stands in the middle */
        double room = canvas->y_min == 0 ? 1 : fabs(canvas->y_min) * 0.1;
        canvas->y_min -= room;
        canvas->y_max += room;
    }
    return any;
}

/* Where value lies between min and max, as one of `steps` places. Halved first: the difference of
 * two doubles may not be one. */
static long place(double value, double min, double max, size_t steps)
{
    double share = max > min ? (value / 2 - min / 2) / (max / 2 - min / 2) : 0;
    return isfinite(share) ? (long)(share * (double)(steps - 1) + 0.5) : 0;
}

static void put_dot(struct canvas *canvas, long x, long y, uint8_t owner)
{
    static const uint8_t braille[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    size_t column = (size_t)x / canvas->dots_x, row = (size_t)y / canvas->dots_y;
    if (x < 0 || y < 0 || column >= canvas->width || row >= canvas->height)
        return;
    size_t cell = row * canvas->width + column;
    canvas->bits[cell] |= braille[(size_t)x % canvas->dots_x][(size_t)y % canvas->dots_y];
    canvas->owner[cell] = owner;
}

static void put_line(struct canvas *canvas, long x0, long y0, long x1, long y1, uint8_t owner)
{
    long dx = labs(x1 - x0), dy = -labs(y1 - y0), error = dx + dy;
    long step_x = x0 < x1 ? 1 : -1, step_y = y0 < y1 ? 1 : -1;
    for (;;) {
        put_dot(canvas, x0, y0, owner);
        if (x0 == x1 && y0 == y1)
            return;
        long twice = 2 * error;
        if (twice >= dy) {
            error += dy;
            x0 += step_x;
        }
        if (twice <= dx) {
            error += dx;
            y0 += step_y;
        }
    }
}

static void put_series(struct canvas *canvas, const struct plot_series *series, uint8_t owner)
{
    bool joined = false;
    long last_x = 0, last_y = 0;
    for (size_t i = 0; i < series->count; i++) {
        if (!isfinite(series->x[i]) || !isfinite(series->y[i])) {
            joined = false;
            continue;
        }
        long x = place(series->x[i], canvas->x_min, canvas->x_max, canvas->width * canvas->dots_x);
        long y =
            place(-series->y[i], -canvas->y_max, -canvas->y_min, canvas->height * canvas->dots_y);
        put_line(canvas, joined ? last_x : x, joined ? last_y : y, x, y, owner);
        last_x = x;
        last_y = y;
        joined = true;
    }
}

static void put_cell(const struct canvas *canvas, size_t cell, bool dots, struct text *out)
{
    uint8_t owner = canvas->owner[cell], bits = canvas->bits[cell];
    if (!owner) {
        text_add(out, " ");
    } else if (dots) { /* U+2800 + bits */
        char glyph[4] = {(char)0xe2, (char)(0xa0 | bits >> 6), (char)(0x80 | (bits & 0x3f)), 0};
        text_add(out, glyph);
    } else {
        text_add_bytes(out, &letters[owner - 1], 1);
    }
}

/* Colour codes only where the series changes. */
static void put_row(const struct canvas *canvas, size_t row, bool dots, bool colour,
                    struct text *out)
{
    uint8_t painted = 0;
    for (size_t column = 0; column < canvas->width; column++) {
        size_t cell = row * canvas->width + column;
        uint8_t owner = canvas->owner[cell];
        if (owner && owner != painted) {
            text_add(out, term_code(colour, paints[owner - 1]));
            painted = owner;
        }
        put_cell(canvas, cell, dots, out);
    }
    text_addf(out, "%s\n", painted ? term_code(colour, TERM_PLAIN) : "");
}

static void put_label(const struct canvas *canvas, size_t row, struct text *out)
{
    char label[LABEL + 8] = "";
    double share = (double)row / (double)(canvas->height - 1);
    double value = canvas->y_max * (1 - share) + canvas->y_min * share;
    if (row == 0 || row == canvas->height - 1 || row == canvas->height / 2)
        snprintf(label, sizeof label, "%.4g", value);
    text_addf(out, "%*s", LABEL, label);
}

static void put_axis(const struct canvas *canvas, const struct plot_options *options,
                     struct text *out)
{
    char left[32], right[32];
    text_addf(out, "%*s%s", LABEL, "", options->unicode ? " \xe2\x94\x94" : " +");
    for (size_t i = 0; i < canvas->width; i++)
        text_add(out, options->unicode ? "\xe2\x94\x80" : "-");
    snprintf(left, sizeof left, "%.10g", canvas->x_min);
    snprintf(right, sizeof right, "%.10g", canvas->x_max);
    int room = (int)canvas->width - (int)strlen(left) - (int)strlen(right);
    int name = (int)term_width(options->x_name);
    int before = room > name + 1 ? (room - name) / 2 : 1;
    int after = room - before - name > 0 ? room - before - name : 1;
    text_addf(out, "\n%*s%s%*s%s%*s%s\n", MARGIN, "", left, before, "", options->x_name, after, "",
              right);
}

static void put_legend(const struct plot_series *series, size_t count, size_t all, bool dots,
                       const struct plot_options *options, struct text *out)
{
    char name[64];
    text_addf(out, "%*s", MARGIN, "");
    for (size_t s = 0; s < count; s++) {
        term_fit(series[s].name, 40, name, sizeof name);
        text_addf(out, "%s%s", s ? "   " : "", term_code(options->colour, paints[s]));
        if (dots)
            text_add(out, "\xe2\x94\x81\xe2\x94\x81");
        else
            text_add_bytes(out, &letters[s], 1);
        text_addf(out, " %s%s", name, term_code(options->colour, TERM_PLAIN));
    }
    if (all > count)
        text_addf(out, "   (%zu more not drawn)", all - count);
    text_add(out, "\n");
}

void plot_draw(const struct plot_series *series, size_t count, const struct plot_options *options,
               struct text *out)
{
    size_t all = count, width = options->width < 30 ? 30 : options->width;
    size_t height = options->height < 6 ? 6 : options->height;
    count = count > PLOT_SERIES_MAX ? PLOT_SERIES_MAX : count;
    bool dots = options->unicode && (count <= 1 || options->colour);
    struct canvas canvas = {.width = width - MARGIN,
                            .height = height - 3,
                            .dots_x = dots ? 2 : 1,
                            .dots_y = dots ? 4 : 1};
    if (!find_range(&canvas, series, count)) {
        text_add(out, "no finite points to draw\n");
        return;
    }
    canvas.bits = mem_array(canvas.width, canvas.height);
    canvas.owner = mem_array(canvas.width, canvas.height);
    for (size_t s = 0; s < count; s++)
        put_series(&canvas, &series[s], (uint8_t)(s + 1));
    put_legend(series, count, all, dots, options, out);
    for (size_t row = 0; row < canvas.height; row++) {
        put_label(&canvas, row, out);
        text_add(out, options->unicode ? " \xe2\x94\x82" : " |");
        put_row(&canvas, row, dots, options->colour, out);
    }
    put_axis(&canvas, options, out);
    mem_free(canvas.bits);
    mem_free(canvas.owner);
}
