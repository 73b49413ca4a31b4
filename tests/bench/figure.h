/* figure.h - the figures that are promised, and those measured beside them. One thread.
 *
 * Rows of the table are a contract: name, unit, target, rival. What is reported is printed at once
 * as `name value unit` (unless JSON was asked for) and kept until the end. */
#pragma once
#include "base/text.h"
#include <stdbool.h>

struct figure_row {
    const char *name, *unit;
    double target;
    bool at_least;     /* else at most */
    const char *means; /* what is measured, and against whom */
};

void figure_quiet(bool quiet); /* nothing is printed before figure_json */
/* value of a row of the table; asserts that there is one. */
void figure_report(const char *name, double value);
/* Beside the contract: calibration, minima, CPU time. */
void figure_note(const char *name, double value, const char *unit);
void figure_list(void);                 /* the table, for people */
void figure_markdown(struct text *out); /* the same as a table of Markdown */
void figure_json(void);                 /* all that was reported */
void figure_fini(void);
