/* fsck_report.h - differences as they come in, printed at the end: a table for people, or the
 * message FsckReport.
 *
 * Loop thread. */
#pragma once
#include "ctl/output.h"
#include "proto/pb.h"

struct fsck_report {
    Pb__FsckReport message;
    size_t room;
    enum output_format format;
    bool repair; /* asked for */
    bool offline;
};
void fsck_report_init(struct fsck_report *report, enum output_format format, bool repair);
void fsck_report_fini(struct fsck_report *report);
/* Both are copied. */
void fsck_report_add(struct fsck_report *report, const Pb__Difference *difference);
void fsck_report_end(struct fsck_report *report, const Pb__FsckSummary *summary);
/* Prints it, the summary last; the exit code. */
int fsck_report_print(const struct fsck_report *report);
