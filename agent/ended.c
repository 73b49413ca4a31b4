/* ended.c - see ended.h. */
#include "agent/ended.h"
#include "agent/worker.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

#define LOOK_US     60000000
#define ENDED_MAX   100000u
#define LOOK_AT_MAX 64u /* sizes asked for in one turn */

struct kept {
    char tag[SPOOL_TAG_MAX];
    uint64_t bytes;
    int64_t mtime_us; /* wall clock of this node: for people and for age */
    bool known;
};
struct ended {
    struct agent *agent;
    struct map *kept; /* tag -> struct kept, oldest first */
    struct loop_timer *timer;
    size_t asking;
};
struct size_ask {
    struct ended *ended;
    char tag[SPOOL_TAG_MAX];
};

static void ended_look(void *arg);

struct ended *ended_create(struct agent *agent)
{
    struct ended *ended = NEW(struct ended);
    ended->agent = agent;
    ended->kept = map_create();
    ended->timer = loop_timer_create(agent->loop, ended_look, ended);
    loop_timer_set(ended->timer, LOOK_US / 30);
    return ended;
}

void ended_destroy(struct ended *ended)
{
    if (!ended)
        return;
    size_t at = 0;
    struct kept *kept;
    while ((kept = map_next(ended->kept, &at)))
        mem_free(kept);
    map_destroy(ended->kept);
    loop_timer_destroy(ended->timer);
    mem_free(ended);
}

void ended_add(struct ended *ended, const char *tag)
{
    if (strlen(tag) >= SPOOL_TAG_MAX || map_get_text(ended->kept, tag))
        return;
    struct kept *kept = NEW(struct kept);
    (void)snprintf(kept->tag, sizeof(kept->tag), "%s", tag);
    kept->mtime_us = loop_wall_us(ended->agent->loop);
    (void)map_put_text(ended->kept, tag, kept);
}

void ended_adopt(struct ended *ended, char *const *names, size_t count)
{
    for (size_t i = 0; i < count && i < ENDED_MAX; i++)
        ended_add(ended, names[i]);
}

bool ended_find(const struct ended *ended, const Pb__WorkerKey *key, char tag[256])
{
    Pb__WorkerKey probe = *key;
    bool found = false;
    for (uint32_t i = key->incarnation ? key->incarnation : 1; i < 1000; i++) {
        char name[SPOOL_TAG_MAX];
        probe.incarnation = i;
        if (!worker_tag(&probe, name) || !map_get_text(ended->kept, name))
            break;
        memcpy(tag, name, SPOOL_TAG_MAX);
        found = true;
        if (key->incarnation)
            break;
    }
    return found;
}

static void drop(struct ended *ended, struct kept *kept)
{
    struct files_batch *batch = files_batch_create();
    SCOPED_TEXT char *path = mem_printf("%s/%s", ended->agent->ended_dir, kept->tag);
    (void)files_step_add(batch, FILES_REMOVE, path);
    files_run(ended->agent->files, batch, NULL, NULL);
    (void)map_remove_text(ended->kept, kept->tag);
    mem_free(kept);
}

static void ended_size_done(void *arg, enum status st, const struct error *err,
                            struct files_batch *batch)
{
    struct size_ask *ask = arg;
    struct kept *kept = map_get_text(ask->ended->kept, ask->tag);
    (void)err;
    ask->ended->asking--;
    if (kept && st == STATUS_OK) {
        kept->known = true;
        kept->bytes = 0;
        int64_t newest = 0;
        for (size_t i = 0; i < batch->ran; i++) {
            const struct files_step *step = &batch->steps[i];
            kept->bytes += step->size - (uint64_t)step->head;
            newest = step->mtime_us > newest ? step->mtime_us : newest;
        }
        if (newest)
            kept->mtime_us = newest;
    }
    pending_destroy(ask);
}

static void ask_size(struct ended *ended, const struct kept *kept)
{
    struct size_ask *ask = PENDING(&ended->agent->pending, struct size_ask);
    struct files_batch *batch = files_batch_create();
    static const char *const names[] = {"out", "err"};
    ask->ended = ended;
    memcpy(ask->tag, kept->tag, sizeof(ask->tag));
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        SCOPED_TEXT char *path =
            mem_printf("%s/%s/%s", ended->agent->ended_dir, kept->tag, names[i]);
        files_read(batch, path, 0, 0)->missing_ok = true;
    }
    ended->asking++;
    files_run(ended->agent->files, batch, ended_size_done, ask);
}

static void ended_look(void *arg)
{
    struct ended *ended = arg;
    const struct agent_config *config = ended->agent->config;
    int64_t oldest = loop_wall_us(ended->agent->loop) - (int64_t)config->logs_keep_s * 1000000;
    uint64_t bytes = 0;
    bool unknown = false;
    struct kept *kept;
    size_t at = 0;
    while ((kept = map_next(ended->kept, &at))) {
        bytes += kept->bytes;
        unknown |= !kept->known;
        if (!kept->known && ended->asking < LOOK_AT_MAX)
            ask_size(ended, kept);
    }
    at = 0;
    while ((kept = map_next(ended->kept, &at))) {
        bool too_much = bytes > config->logs_keep_mib << 20;
        if (!too_much && (!kept->known || kept->mtime_us > oldest) &&
            map_count(ended->kept) <= ENDED_MAX)
            continue;
        bytes -= kept->bytes;
        drop(ended, kept);
    }
    loop_timer_set(ended->timer, unknown ? LOOK_US / 30 : LOOK_US);
}
