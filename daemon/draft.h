/* draft.h - a committed row and, while a turn decides, its draft.
 *
 * Loop thread. An entry is embedded in the object that it is the row of. Readers use `row`;
 * deciders edit the draft that draft_edit gives (a copy, made on the first edit of a turn). When
 * the transaction is durable the drafts become the rows (draft_commit); when it is not, they vanish
 * (draft_abort). An entry without a row does not exist yet for readers. */
#pragma once
#include "base/list.h"
#include "daemon/store.h"

struct entry {
    enum change_kind kind;
    ProtobufCMessage *row, *draft;
    struct list dirty; /* in draft_set.entries while there is a draft */
    /* After a commit or an abort; may be NULL. */
    void (*settled)(struct entry *entry, bool committed, void *arg);
    void *arg;
};
struct draft_set {
    struct list entries;
    size_t count;
};

void draft_set_init(struct draft_set *set);
void entry_init(struct entry *entry, enum change_kind kind,
                void (*settled)(struct entry *, bool, void *), void *arg);
void entry_fini(struct entry *entry);
/* The message to change; entries come to the set in the order of their first edit. */
ProtobufCMessage *draft_edit(struct draft_set *set, struct entry *entry);
/* A new entry's first draft. */
void draft_add_take(struct draft_set *set, struct entry *entry, ProtobufCMessage *message_take);
/* What decisions of this turn must see: the draft if there is one, else the row. */
static inline ProtobufCMessage *draft_view(const struct entry *entry)
{
    return entry->draft ? entry->draft : entry->row;
}
void draft_commit(struct draft_set *set);
void draft_abort(struct draft_set *set);

/* Replaces an owned string or sub-message of a draft. */
void draft_text(char **field, const char *text);
