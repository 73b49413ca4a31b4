/* draft.c - a committed row and its draft. See draft.h. */
#include "daemon/draft.h"
#include "base/mem.h"
#include "proto/pb.h"
#include "proto/text/text_format.h"
#include <stdlib.h>

static void message_free(ProtobufCMessage *message)
{
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
}

void draft_set_init(struct draft_set *set)
{
    list_init(&set->entries);
    set->count = 0;
}

void entry_init(struct entry *entry, enum change_kind kind,
                void (*settled)(struct entry *, bool, void *), void *arg)
{
    *entry = (struct entry){.kind = kind, .settled = settled, .arg = arg};
    list_init(&entry->dirty);
}

void entry_fini(struct entry *entry)
{
    list_remove(&entry->dirty);
    message_free(entry->row);
    message_free(entry->draft);
    entry->row = entry->draft = NULL;
}

/* A job's spec never changes and may be large: row and draft share it. */
static ProtobufCMessage *copy_row(const struct entry *entry)
{
    if (entry->kind != CHANGE_JOB)
        return message_copy(entry->row);
    Pb__Job *job = (Pb__Job *)entry->row;
    Pb__JobSpec *spec = job->spec;
    job->spec = NULL;
    Pb__Job *copy = (Pb__Job *)message_copy(&job->base);
    job->spec = copy->spec = spec;
    return &copy->base;
}

/* Frees one of the two without the spec that the other keeps. */
static void drop_shared(const struct entry *entry, ProtobufCMessage *dead,
                        const ProtobufCMessage *kept)
{
    if (dead && kept && entry->kind == CHANGE_JOB &&
        ((Pb__Job *)dead)->spec == ((const Pb__Job *)kept)->spec)
        ((Pb__Job *)dead)->spec = NULL;
    message_free(dead);
}

ProtobufCMessage *draft_edit(struct draft_set *set, struct entry *entry)
{
    if (!entry->draft) {
        entry->draft = copy_row(entry);
        list_add_last(&set->entries, &entry->dirty);
        set->count++;
    }
    return entry->draft;
}

void draft_add_take(struct draft_set *set, struct entry *entry, ProtobufCMessage *message_take)
{
    entry->draft = message_take;
    list_add_last(&set->entries, &entry->dirty);
    set->count++;
}

void draft_commit(struct draft_set *set)
{
    for (struct list *item; (item = list_take_first(&set->entries));) {
        struct entry *entry = LIST_ITEM(item, struct entry, dirty);
        drop_shared(entry, entry->row, entry->draft);
        entry->row = entry->draft;
        entry->draft = NULL;
        if (entry->settled)
            entry->settled(entry, true, entry->arg);
    }
    set->count = 0;
}

void draft_abort(struct draft_set *set)
{
    for (struct list *item; (item = list_take_first(&set->entries));) {
        struct entry *entry = LIST_ITEM(item, struct entry, dirty);
        drop_shared(entry, entry->draft, entry->row);
        entry->draft = NULL;
        if (entry->settled)
            entry->settled(entry, false, entry->arg);
    }
    set->count = 0;
}

void draft_text(char **field, const char *text)
{
    char *copy = mem_strdup(text);

    if (*field && (const void *)*field != (const void *)&protobuf_c_empty_string)
        free(*field);
    *field = copy;
}
