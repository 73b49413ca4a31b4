/* fsck_report.c - see fsck_report.h. */
#include "ctl/fsck_report.h"
#include "base/mem.h"
#include "ctl/verb.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void fsck_report_init(struct fsck_report *report, enum output_format format, bool repair)
{
    *report = (struct fsck_report){.format = format, .repair = repair};
    pb__fsck_report__init(&report->message);
}

void fsck_report_fini(struct fsck_report *report)
{
    for (size_t i = 0; i < report->message.n_differences; i++)
        pb__difference__free_unpacked(report->message.differences[i], NULL);
    mem_free(report->message.differences);
    if (report->message.summary)
        pb__fsck_summary__free_unpacked(report->message.summary, NULL);
}

void fsck_report_add(struct fsck_report *report, const Pb__Difference *difference)
{
    Pb__FsckReport *message = &report->message;
    if (message->n_differences == report->room) {
        report->room = report->room ? 2 * report->room : 16;
        message->differences = mem_resize(message->differences, report->room, sizeof(void *));
    }
    message->differences[message->n_differences++] =
        (Pb__Difference *)message_copy(&difference->base);
}

void fsck_report_end(struct fsck_report *report, const Pb__FsckSummary *summary)
{
    if (!report->message.summary)
        report->message.summary = (Pb__FsckSummary *)message_copy(&summary->base);
}

/* "part-damaged" */
static void kind_name(const Pb__Difference *difference, char *out, size_t cap)
{
    static const char large[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_",
                      small[] = "abcdefghijklmnopqrstuvwxyz-";
    const char *name = enum_name(&pb__difference__kind__descriptor, (int)difference->kind);
    snprintf(out, cap, "%s", name ? name : "");
    for (char *c = out; *c; c++) {
        const char *at = strchr(large, *c);
        if (at)
            *c = small[at - large];
    }
}

/* "#7 job-3/step-20.1 w-0 on n2", as much of it as is known */
static void place(const Pb__Difference *difference, struct text *out)
{
    if (difference->checkpoint)
        text_addf(out, "#%" PRId64 " ", difference->checkpoint);
    if (difference->path)
        text_addf(out, "%s ", difference->path);
    else if (difference->vault && *difference->vault)
        text_addf(out, "vault %s ", difference->vault);
    else if (difference->job)
        text_addf(out, "job %" PRId64 " ", difference->job);
    if (difference->role)
        text_addf(out, "%s-%" PRIu32 " ", difference->role, difference->rank);
    if (difference->node && *difference->node)
        text_addf(out, "on %s", difference->node);
}

static const char *outcome(const Pb__Difference *difference)
{
    return difference->outcome == PB__DIFFERENCE__OUTCOME__REPAIRED ? "repaired: "
           : difference->outcome == PB__DIFFERENCE__OUTCOME__LEFT   ? "left: "
                                                                    : "";
}

static void print_table(const struct fsck_report *report)
{
    static const struct table_column columns[] = {{"WHAT", TABLE_LEFT},
                                                  {"WHERE", TABLE_SHRINK},
                                                  {"WHICH MEANS", TABLE_SHRINK},
                                                  {"REPAIR", TABLE_SHRINK}};
    struct table *table = table_create(columns, COUNT_OF(columns));
    for (size_t i = 0; i < report->message.n_differences; i++) {
        const Pb__Difference *difference = report->message.differences[i];
        char kind[40];
        struct text where;
        text_init(&where, 0);
        kind_name(difference, kind, sizeof kind);
        place(difference, &where);
        table_add(table, kind);
        table_add(table, text_get(&where));
        table_addf(table, "%s%s", difference->pinned ? "pinned: " : "",
                   difference->text ? difference->text : "");
        table_addf(table, "%s%s", outcome(difference), difference->note ? difference->note : "");
        text_fini(&where);
    }
    output_table_take(table);
}

static void print_summary(const struct fsck_report *report)
{
    const Pb__FsckSummary *summary = report->message.summary;
    char read[32];
    text_bytes(summary->bytes, read, sizeof read);
    if (!report->offline)
        printf("%" PRIu64 " checkpoint%s, ", summary->checkpoints,
               summary->checkpoints == 1 ? "" : "s");
    printf("%" PRIu64 " director%s", summary->directories, summary->directories == 1 ? "y" : "ies");
    if (summary->nodes)
        printf(", %" PRIu32 " nodes", summary->nodes);
    if (summary->bytes)
        printf(", %s read", read);
    if (summary->changing)
        printf(", %" PRIu32 " changing and not compared", summary->changing);
    if (summary->set_aside)
        printf(", %" PRIu32 " in lost+found", summary->set_aside);
    if (summary->differences == 0)
        printf(": clean\n");
    else if (report->repair)
        printf(": %" PRIu32 " differences, %" PRIu32 " repaired, %" PRIu32 " left\n",
               summary->differences, summary->repaired, summary->left);
    else
        printf(": %" PRIu32 " differences; nothing was changed (--repair)\n", summary->differences);
}

int fsck_report_print(const struct fsck_report *report)
{
    if (report->format != OUTPUT_TABLE) {
        output_message(report->format, &report->message.base);
    } else {
        if (report->message.n_differences)
            print_table(report);
        print_summary(report);
    }
    return report->message.summary->left ? VERB_NEGATIVE : VERB_OK;
}
