/* vault_look.c - see vault_look.h. */
#include "checkpoint/vault_look.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/vault_audit.h"
#include "checkpoint/vault_list.h"
#include "checkpoint/vault_tree.h"

#define SLOTS_MAX    100000u
#define ASIDE_SAME   100 /* directories of one name */
#define ASIDE_PREFIX VAULT_LOOK_ASIDE "/"

struct vault_look {
    char *vault, *node;
    int64_t job;
    bool deep, whole;
    struct vault_list *list;
    size_t next;
    Pb__VaultFound *found;     /* being read */
    struct vault_audit *audit; /* of it */
    uint64_t bytes;            /* of those before */
};

static void found_destroy(Pb__VaultFound *found)
{
    if (found)
        pb__vault_found__free_unpacked(found, NULL);
}
SCOPED_DESTRUCTOR(Pb__VaultFound *, found_destroy)

/* --- what there is */

static void list_add(struct vault_list *list, enum vault_list_kind kind, const char *path,
                     int64_t modified_us)
{
    list->entries = mem_resize(list->entries, list->count + 1, sizeof *list->entries);
    list->entries[list->count++] = (struct vault_list_entry){
        .kind = kind, .path = mem_strdup(path), .modified_us = modified_us};
}

static int64_t modified_us(int dir, const char *name)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    return (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
}

/* One directory of slots for each incarnation: job-7/3.1 */
static enum status list_slots_of(struct vault_look *look, const char *job, struct error *err)
{
    SCOPED_FD int dir = -1;
    const struct dirent *entry;
    enum status st = vault_tree_open(look->vault, job, false, &dir, err);

    if (st != STATUS_OK)
        return STATUS_OK; /* it went away, or is none */
    SCOPED(vault_tree_names_close) DIR *names = vault_tree_names(dir);
    while (names && look->list->count < SLOTS_MAX && (entry = readdir(names))) {
        SCOPED_TEXT char *path = mem_printf("%s/%s", job, entry->d_name);
        if (entry->d_name[0] != '.' && vault_tree_path_ok(path))
            list_add(look->list, VAULT_LIST_UNSEALED, path, modified_us(dir, entry->d_name));
    }
    return STATUS_OK;
}

static enum status list_slots(struct vault_look *look, struct error *err)
{
    SCOPED_FD int dir = -1;
    const struct dirent *entry;
    enum status st = vault_tree_open(look->vault, "", false, &dir, err);

    look->list = NEW(struct vault_list);
    if (st == STATUS_NOT_FOUND)
        return STATUS_OK; /* none was ever given out */
    if (st != STATUS_OK)
        return st;
    SCOPED(vault_tree_names_close) DIR *names = vault_tree_names(dir);
    if (!names)
        return error_set(err, vault_tree_status(errno), "list %s: %s", look->vault,
                         strerror(errno));
    while (st == STATUS_OK && (entry = readdir(names)))
        if (strncmp(entry->d_name, "job-", 4) == 0)
            st = list_slots_of(look, entry->d_name, err);
    return st;
}

static enum status list_one(struct vault_look *look, const char *path, struct error *err)
{
    SCOPED(vault_list_destroy) struct vault_list *list = NULL;
    SCOPED_TEXT char *below = mem_printf("%s/%s", look->vault, path);

    look->list = NEW(struct vault_list);
    if (!vault_tree_path_ok(path))
        return error_set(err, STATUS_INVALID, "'%.80s' is no path inside a vault", path);
    enum status st = vault_list_read(below, false, &list, err);
    if (st == STATUS_NOT_FOUND || (st == STATUS_OK && list->count != 1))
        return STATUS_OK;
    if (st != STATUS_OK)
        return st;
    mem_free(list->entries[0].path);
    list->entries[0].path = mem_strdup(path);
    look->list->entries = list->entries;
    look->list->count = 1;
    list->entries = NULL;
    list->count = 0;
    return STATUS_OK;
}

enum status vault_look_begin(const struct vault_look_options *options, struct vault_look **out,
                             struct error *err)
{
    SCOPED(vault_look_destroy) struct vault_look *look = NEW(struct vault_look);
    enum status st;

    look->vault = mem_strdup(options->vault);
    look->node = mem_strdup(options->node);
    look->job = options->job;
    look->deep = options->deep;
    look->whole = options->whole;
    if (options->slots)
        st = list_slots(look, err);
    else if (options->path)
        st = list_one(look, options->path, err);
    else
        st = vault_list_read(look->vault, false, &look->list, err);
    for (size_t i = 0; options->slots && st == STATUS_OK && i < look->list->count; i++)
        look->list->entries[i].problem = mem_strdup("slot");
    if (st == STATUS_OK)
        *out = TAKE(look);
    return st;
}

void vault_look_destroy(struct vault_look *look)
{
    if (!look)
        return;
    vault_list_destroy(look->list);
    vault_audit_destroy(look->audit);
    found_destroy(look->found);
    mem_free(look->vault);
    mem_free(look->node);
    mem_free(look);
}

uint64_t vault_look_bytes(const struct vault_look *look)
{
    return look->bytes + (look->audit ? vault_audit_bytes(look->audit) : 0);
}

/* --- one directory */

/* A text for a file that is not as it must be; NULL: it is. *missing: it is not there at all. */
static char *file_problem(int dir, const Pb__CheckpointFile *want, bool *missing, struct error *err)
{
    SCOPED_FD int fd = -1;
    struct stat st;
    enum status status = vault_tree_file(dir, want->path, &fd, err);

    *missing = status == STATUS_NOT_FOUND;
    if (*missing)
        return mem_printf("%s is missing", want->path);
    if (status == STATUS_INVALID)
        return mem_printf("%s is not a file", want->path);
    if (status != STATUS_OK || fstat(fd, &st) != 0)
        return mem_printf("%s cannot be opened: %s", want->path,
                          status != STATUS_OK ? err->text : strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != want->bytes)
        return mem_printf("%s has %" PRId64 " bytes, not %" PRIu64, want->path, (int64_t)st.st_size,
                          want->bytes);
    return NULL;
}

static void look_at_part(int dir, const Pb__CheckpointPart *part, Pb__VaultFound__Part *out)
{
    struct error err = {0};
    size_t gone = 0;

    pb__vault_found__part__init(out);
    out->role = mem_strdup(part->role);
    out->node = mem_strdup(part->node);
    out->has_rank = out->has_state = true;
    out->rank = part->rank;
    for (size_t i = 0; i < part->n_files; i++) {
        bool missing;
        char *problem = file_problem(dir, part->files[i], &missing, &err);
        gone += missing;
        if (out->text)
            mem_free(problem);
        else
            out->text = problem;
    }
    out->state = !out->text                               ? PB__VAULT_FOUND__PART_STATE__WHOLE
                 : gone == part->n_files && part->n_files ? PB__VAULT_FOUND__PART_STATE__MISSING
                                                          : PB__VAULT_FOUND__PART_STATE__DAMAGED;
}

static void drop_files(Pb__Checkpoint *row)
{
    for (size_t i = 0; i < row->n_parts; i++) {
        for (size_t k = 0; k < row->parts[i]->n_files; k++)
            pb__checkpoint_file__free_unpacked(row->parts[i]->files[k], NULL);
        mem_free(row->parts[i]->files);
        row->parts[i]->files = NULL;
        row->parts[i]->n_files = 0;
    }
}

static enum status look_at_sealed(struct vault_look *look, struct vault_list_entry *entry,
                                  Pb__VaultFound *found, struct error *err)
{
    SCOPED_FD int dir = -1;
    enum status st = vault_tree_open(look->vault, entry->path, false, &dir, err);

    if (st != STATUS_OK)
        return st;
    found->manifest = TAKE(entry->row);
    found->manifest_digest = mem_strdup(found->manifest->manifest_digest);
    found->parts = mem_array(found->manifest->n_parts + 1, sizeof(void *));
    for (size_t i = 0; i < found->manifest->n_parts; i++) {
        found->parts[found->n_parts] = NEW(Pb__VaultFound__Part);
        look_at_part(dir, found->manifest->parts[i], found->parts[found->n_parts++]);
    }
    return STATUS_OK;
}

static Pb__VaultFound__Kind kind_of(const struct vault_list_entry *entry)
{
    switch (entry->kind) {
    case VAULT_LIST_SEALED:
        return PB__VAULT_FOUND__KIND__SEALED;
    case VAULT_LIST_BAD:
        return PB__VAULT_FOUND__KIND__BAD;
    case VAULT_LIST_DELETED:
        return PB__VAULT_FOUND__KIND__TOMBSTONE;
    case VAULT_LIST_STAGING:
        return PB__VAULT_FOUND__KIND__STAGING;
    case VAULT_LIST_UNSEALED:
        break;
    }
    return entry->problem ? PB__VAULT_FOUND__KIND__SLOT : PB__VAULT_FOUND__KIND__UNSEALED;
}

static int64_t age_of(const struct vault_list_entry *entry)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 - entry->modified_us;
    return age > 0 ? age : 0;
}

/* NULL with STATUS_OK: it went away meanwhile. */
static enum status look_at(struct vault_look *look, struct vault_list_entry *entry,
                           Pb__VaultFound **out, struct error *err)
{
    SCOPED(found_destroy) Pb__VaultFound *found = NEW(Pb__VaultFound);
    enum status st = STATUS_OK;

    pb__vault_found__init(found);
    found->has_kind = found->has_age_us = true;
    found->kind = kind_of(entry);
    found->path = mem_strdup(entry->path);
    found->age_us = age_of(entry);
    if (entry->kind == VAULT_LIST_BAD)
        found->problem = mem_strdup(entry->problem);
    if (entry->kind == VAULT_LIST_SEALED)
        st = look_at_sealed(look, entry, found, err);
    if (st == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (st == STATUS_OK)
        *out = TAKE(found);
    return st;
}

/* --- its bytes */

static bool is_read_by(const struct vault_look *look, const Pb__VaultFound__Part *part)
{
    return !look->node || (part->node && strcmp(part->node, look->node) == 0);
}

static bool is_to_be_read(const struct vault_look *look, const Pb__VaultFound *found)
{
    bool any = false;

    if (!look->deep || found->kind != PB__VAULT_FOUND__KIND__SEALED)
        return false;
    for (size_t i = 0; i < found->n_parts; i++) {
        if (!is_read_by(look, found->parts[i]))
            continue;
        if (found->parts[i]->state != PB__VAULT_FOUND__PART_STATE__WHOLE)
            return false;
        any = true;
    }
    return any;
}

/* The text names a file, and that its part. */
static void note_damage(const struct vault_look *look, Pb__VaultFound *found, const char *text)
{
    Pb__VaultFound__Part *bad = NULL;

    for (size_t i = 0; i < found->n_parts; i++) {
        Pb__VaultFound__Part *part = found->parts[i];
        SCOPED_TEXT char *name = mem_printf("%s-%" PRIu32 "/", part->role, part->rank);
        if (is_read_by(look, part) && (!bad || strstr(text, name)))
            bad = part;
    }
    if (!bad)
        return;
    bad->state = PB__VAULT_FOUND__PART_STATE__DAMAGED;
    mem_free(bad->text);
    bad->text = mem_strdup(text);
}

static enum status read_on(struct vault_look *look, uint64_t bytes_max, bool *over,
                           struct error *err)
{
    struct error why = {0};
    enum status st = STATUS_OK;

    if (!look->audit)
        st = vault_audit_begin(look->vault, look->found->path, look->found->manifest_digest,
                               look->node, &look->audit, &why);
    if (st == STATUS_OK)
        st = vault_audit_step(look->audit, bytes_max, over, &why);
    if (st != STATUS_OK)
        *over = true;
    if (st == STATUS_DATA_LOSS)
        note_damage(look, look->found, why.text);
    else if (st != STATUS_OK && st != STATUS_NOT_FOUND)
        return error_set(err, st, "%s", why.text);
    return STATUS_OK;
}

static enum status found_read(struct vault_look *look, uint64_t bytes_max, bool *done,
                              struct error *err)
{
    enum status st = read_on(look, bytes_max, done, err);

    if (st != STATUS_OK || !*done)
        return st;
    look->found->has_read = look->found->read = true;
    look->bytes = vault_look_bytes(look);
    vault_audit_destroy(TAKE(look->audit));
    return STATUS_OK;
}

/* --- steps */

static bool is_wanted(const struct vault_look *look, const char *path)
{
    SCOPED_TEXT char *job = mem_printf("job-%" PRId64 "/", look->job);

    return look->job == 0 || strncmp(path, job, strlen(job)) == 0;
}

bool vault_look_has_others(const struct vault_look *look)
{
    for (size_t i = 0; i < look->list->count; i++)
        if (strncmp(look->list->entries[i].path, "job-", 4) == 0 &&
            !is_wanted(look, look->list->entries[i].path))
            return true;
    return false;
}

enum status vault_look_step(struct vault_look *look, uint64_t bytes_max, Pb__VaultFound **out,
                            bool *over, struct error *err)
{
    enum status st = STATUS_OK;
    bool done = true;

    *out = NULL;
    *over = false;
    while (!look->found && st == STATUS_OK && look->next < look->list->count) {
        struct vault_list_entry *entry = &look->list->entries[look->next++];
        if (is_wanted(look, entry->path))
            st = look_at(look, entry, &look->found, err);
    }
    if (st != STATUS_OK)
        return st;
    if (!look->found) {
        *over = true;
        return STATUS_OK;
    }
    if (is_to_be_read(look, look->found))
        st = found_read(look, bytes_max, &done, err);
    if (st != STATUS_OK || !done)
        return st;
    if (look->found->manifest && !look->whole)
        drop_files(look->found->manifest);
    *out = TAKE(look->found);
    return STATUS_OK;
}

/* --- set aside */

static enum status sync_dir(int dir, struct error *err)
{
    if (fsync(dir) != 0)
        return error_set(err, vault_tree_status(errno), "sync a directory: %s", strerror(errno));
    return STATUS_OK;
}

static enum status move(int from, const char *name, int to, const char *path, struct error *err)
{
    SCOPED_TEXT char *flat = mem_strdup(path);

    for (char *c = flat; *c; c++)
        if (*c == '/')
            *c = '.';
    for (int i = 1; i <= ASIDE_SAME; i++) {
        SCOPED_TEXT char *as = i == 1 ? mem_strdup(flat) : mem_printf("%s.again-%d", flat, i);
        if (renameat2(from, name, to, as, RENAME_NOREPLACE) == 0)
            return STATUS_OK;
        if (errno != EEXIST)
            break;
    }
    return error_set(err, vault_tree_status(errno), "move %s to " VAULT_LOOK_ASIDE ": %s", path,
                     strerror(errno));
}

enum status vault_look_set_aside(const char *vault, const char *path, struct error *err)
{
    SCOPED_FD int from = -1;
    SCOPED_FD int to = -1;
    const char *slash = strrchr(path, '/');
    SCOPED_TEXT char *above =
        slash ? mem_printf("%.*s", (int)(slash - path), path) : mem_strdup("");

    if (!vault_tree_path_ok(path) || strncmp(path, ASIDE_PREFIX, strlen(ASIDE_PREFIX)) == 0)
        return error_set(err, STATUS_INVALID, "'%.80s' is no path to be set aside", path);
    enum status st = vault_tree_open(vault, above, false, &from, err);
    if (st == STATUS_OK)
        st = vault_tree_open(vault, VAULT_LOOK_ASIDE, true, &to, err);
    if (st == STATUS_OK)
        st = move(from, slash ? slash + 1 : path, to, path, err);
    if (st == STATUS_OK)
        st = sync_dir(to, err);
    return st == STATUS_OK ? sync_dir(from, err) : st;
}
