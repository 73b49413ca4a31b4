/* plot.h - lines of points drawn with characters.
 *
 * Any thread; pure. Braille dots (2 x 4 a cell) where Unicode and, for several series, colour are
 * there; else one letter a series. NaN and infinities break the line. */
#pragma once
#include "base/text.h"

enum { PLOT_SERIES_MAX = 6 };

struct plot_series {
    const char *name;
    const double *x, *y; /* x ascending */
    size_t count;
};
struct plot_options {
    size_t width, height; /* in characters, with labels; at least 30 x 6 */
    bool unicode, colour;
    const char *x_name;
};

/* Series past PLOT_SERIES_MAX are left out, and said so. Nothing finite: one line that says so. */
void plot_draw(const struct plot_series *series, size_t count, const struct plot_options *options,
               struct text *out);
