/* curve.h - metrics of a job, fetched and drawn.
 *
 * Loop thread. Integers become doubles for drawing only; -o json keeps them exact. */
#pragma once
#include "ctl/connect.h"

/* Draws the series to stdout, attempts of one series as one line. False: nothing to draw. */
bool curve_print(Pb__Series *const *series, size_t count, size_t height);
/* Fetches the named series (NULL: none in particular) of rank 0 and draws them. */
int curve_show(struct connect *connect, int64_t job, const char *name);
/* The value of point i, and how many points there are. */
double curve_value(const Pb__Series *series, size_t i);
size_t curve_points(const Pb__Series *series);
