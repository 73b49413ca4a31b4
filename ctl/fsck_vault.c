/* fsck_vault.c - see fsck_vault.h. */
#include "ctl/fsck_vault.h"
#include "base/mem.h"
#include "checkpoint/vault.h"
#include "checkpoint/vault_look.h"
#include "checkpoint/verify.h"
#include "ctl/checkpoint_at.h"
#include "ctl/meter.h"
#include "ctl/verb.h"
#include <stdio.h>
#include <string.h>

#define MAKING_US (24 * 3600 * 1000000ll) /* no copy or export takes that long */

struct check {
    const struct fsck_vault_options *options;
    struct fsck_report *report;
    Pb__FsckSummary summary;
    struct meter meter;
};

static void tell(struct check *check, Pb__Difference__Kind kind, const Pb__VaultFound *found,
                 const Pb__VaultFound__Part *part, const char *text, const char *note)
{
    Pb__Difference difference = PB__DIFFERENCE__INIT;
    bool removes = strncmp(note, "remove", 6) == 0;
    struct error err = {0};
    difference.has_kind = difference.has_repair = difference.has_outcome = true;
    difference.kind = kind;
    difference.repair = removes ? PB__DIFFERENCE__REPAIR__REMOVE : PB__DIFFERENCE__REPAIR__NOTHING;
    difference.outcome =
        check->options->repair ? PB__DIFFERENCE__OUTCOME__LEFT : PB__DIFFERENCE__OUTCOME__FOUND;
    difference.path = found->path;
    difference.text = (char *)(uintptr_t)text;
    difference.note = (char *)(uintptr_t)note;
    if (part) {
        difference.role = part->role;
        difference.has_rank = true;
        difference.rank = part->rank;
    }
    if (found->manifest) {
        difference.has_job = difference.has_step = true;
        difference.job = found->manifest->job;
        difference.step = found->manifest->step;
    }
    if (check->options->repair && removes) {
        enum status st = vault_delete(check->options->vault, found->path, &err);
        difference.outcome =
            st == STATUS_OK ? PB__DIFFERENCE__OUTCOME__REPAIRED : PB__DIFFERENCE__OUTCOME__LEFT;
        check->summary.repaired += st == STATUS_OK;
        if (st != STATUS_OK)
            difference.note = err.text;
    }
    check->summary.differences++;
    fsck_report_add(check->report, &difference);
}

/* --- a sealed one */

static bool look_at_parts(struct check *check, const Pb__VaultFound *found)
{
    bool good = true;
    for (size_t i = 0; i < found->n_parts; i++) {
        const Pb__VaultFound__Part *part = found->parts[i];
        bool missing = part->state == PB__VAULT_FOUND__PART_STATE__MISSING;
        if (part->state == PB__VAULT_FOUND__PART_STATE__WHOLE)
            continue;
        tell(check,
             missing ? PB__DIFFERENCE__KIND__PART_MISSING : PB__DIFFERENCE__KIND__PART_DAMAGED,
             found, part, part->text ? part->text : "its part is not there",
             "nothing: do not use it");
        good = false;
    }
    return good;
}

static enum status read_it(struct check *check, const Pb__VaultFound *found, struct error *err)
{
    SCOPED(verify_report_destroy) struct verify_report *report = NULL;
    enum status st = verify_run(check->options->vault, found->path, found->manifest_digest,
                                &check->meter.watcher, &report, err);
    if (st == STATUS_NOT_FOUND)
        return STATUS_OK; /* it went away */
    if (st != STATUS_OK)
        return st;
    check->summary.bytes += report->bytes;
    for (size_t i = 0; i < report->found_count; i++) {
        const char *file = report->found[i].file, *text = report->found[i].text;
        bool named = strncmp(text, file, strlen(file)) == 0;
        SCOPED_TEXT char *both =
            named ? mem_strdup(text) : mem_printf("%s: %s", report->found[i].file, text);
        tell(check, PB__DIFFERENCE__KIND__PART_DAMAGED, found, NULL, both,
             "nothing: do not use it");
    }
    return STATUS_OK;
}

/* --- all of it */

static bool is_aside(const char *path)
{
    return strncmp(path, VAULT_LOOK_ASIDE "/", strlen(VAULT_LOOK_ASIDE "/")) == 0;
}

static enum status look_at(struct check *check, const Pb__VaultFound *found, struct error *err)
{
    check->summary.directories++;
    if (is_aside(found->path)) {
        check->summary.set_aside++;
        return STATUS_OK;
    }
    switch (found->kind) {
    case PB__VAULT_FOUND__KIND__SEALED:
        return look_at_parts(check, found) && check->options->deep ? read_it(check, found, err)
                                                                   : STATUS_OK;
    case PB__VAULT_FOUND__KIND__BAD:
        tell(check, PB__DIFFERENCE__KIND__MANIFEST_BAD, found, NULL,
             found->problem ? found->problem : "its manifest cannot be read",
             "nothing: do not use it");
        break;
    case PB__VAULT_FOUND__KIND__UNSEALED:
        tell(check, PB__DIFFERENCE__KIND__STAGING_LEFT, found, NULL,
             "unfinished: a save goes on, or came to nothing", "nothing: the daemon knows");
        break;
    case PB__VAULT_FOUND__KIND__TOMBSTONE:
        tell(check, PB__DIFFERENCE__KIND__TOMBSTONE_LEFT, found, NULL,
             "a deletion that came to no end", "remove it");
        break;
    case PB__VAULT_FOUND__KIND__STAGING:
        if (found->age_us > MAKING_US)
            tell(check, PB__DIFFERENCE__KIND__MAKING_LEFT, found, NULL,
                 "a copy or export that came to no end", "remove it");
        break;
    default:
        break;
    }
    return STATUS_OK;
}

static enum status check_all(struct check *check, struct error *err)
{
    SCOPED(vault_look_destroy) struct vault_look *look = NULL;
    bool over = false;
    enum status st = vault_look_begin(
        &(struct vault_look_options){.vault = check->options->vault, .job = check->options->job},
        &look, err);
    while (st == STATUS_OK && !over) {
        Pb__VaultFound *found = NULL;
        st = vault_look_step(look, 1, &found, &over, err);
        if (!found)
            continue;
        st = look_at(check, found, err);
        pb__vault_found__free_unpacked(found, NULL);
    }
    return st;
}

int fsck_vault_run(const struct fsck_vault_options *options, struct fsck_report *report)
{
    struct check check = {.options = options, .report = report};
    struct error err = {0};
    pb__fsck_summary__init(&check.summary);
    report->offline = true;
    meter_begin(&check.meter, "fsck", 0);
    enum status st = check_all(&check, &err);
    meter_end(&check.meter);
    if (st != STATUS_OK)
        return checkpoint_at_fail("fsck", st, err.text);
    Pb__FsckSummary *summary = &check.summary;
    summary->has_directories = summary->has_bytes = summary->has_differences = true;
    summary->has_repaired = summary->has_left = summary->has_set_aside = true;
    summary->left = summary->differences - summary->repaired;
    fsck_report_end(report, summary);
    return VERB_OK;
}
