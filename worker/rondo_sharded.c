/* rondo_sharded.c - the calls of rondo.h for sharded checkpoints: their edge (edge.h), their lock.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "worker/edge.h"
#include "worker/member.h"
#include "worker/sharded.h"
#include "worker/stored.h"

#define EXPORT    __attribute__((visibility("default")))
#define STATE_MAX ((size_t)256 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sharded sharded = {.due_step = -1};

static int not_here(void)
{
    return member_fail(RONDO_PRECONDITION, atomic_load(&member.pid)
                                               ? "this process was forked from the member"
                                               : "rondo_join was not called");
}

/* --- saves */

static int save_inside(void *arg)
{
    return sharded_save(&sharded, arg);
}

EXPORT int rondo_save_sharded(struct rondo_save *save)
{
    int result;

    if (!member_is_here() || !member.writer)
        return not_here();
    if (!save || save->size < sizeof *save)
        return member_fail(RONDO_INVALID, "rondo_save_sharded: size of struct rondo_save");
    if (save->step < 0)
        return member_fail(RONDO_INVALID, "step %lld is negative", (long long)save->step);
    if (save->samples < 0)
        return member_fail(RONDO_INVALID, "%lld samples", (long long)save->samples);
    if (!save->state || save->state_len == 0 || save->state_len > STATE_MAX)
        return member_fail(RONDO_INVALID, "plain values of %zu bytes", save->state_len);
    (void)pthread_mutex_lock(&lock);
    result = edge_run(save_inside, save);
    (void)pthread_mutex_unlock(&lock);
    return result;
}

struct given_layout {
    const char *text;
    size_t len;
};

static int prepare_inside(void *arg)
{
    const struct given_layout *given = arg;

    return sharded_prepare(&sharded, given->text, given->len);
}

static int room_inside(void *arg)
{
    (void)arg;
    if (sharded.text)
        sharded_slot_prepare(&sharded);
    return 0;
}

static void *make_room(void *arg)
{
    (void)pthread_mutex_lock(&lock);
    (void)edge_run(room_inside, arg);
    (void)pthread_mutex_unlock(&lock);
    return NULL;
}

/* Without a thread there is no room made in advance, and nothing else is lost. */
static void make_room_behind(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t every, before;

    if (pthread_attr_init(&attributes) != 0)
        return;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
    (void)pthread_create(&thread, &attributes, make_room, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
}

EXPORT int rondo_prepare_sharded(const char *layout, size_t layout_len)
{
    struct given_layout given = {layout, layout_len};
    int result;

    if (!member_is_here() || !member.writer)
        return not_here();
    (void)pthread_mutex_lock(&lock);
    result = edge_run(prepare_inside, &given);
    (void)pthread_mutex_unlock(&lock);
    if (result == 0 && member.job.managed)
        make_room_behind();
    return result;
}

/* --- loads */

struct opening {
    const char *dir;
    uint32_t flags;
    struct rondo_stored **out;
};

static int open_inside(void *arg)
{
    const struct opening *opening = arg;

    return stored_open(opening->dir, opening->flags, opening->out);
}

EXPORT int rondo_stored_open(const char *dir, uint32_t flags, struct rondo_stored **out)
{
    struct opening opening = {dir, flags, out};

    if (!member_is_here())
        return not_here();
    if (!out)
        return member_fail(RONDO_INVALID, "rondo_stored_open: nowhere to put it");
    return edge_run(open_inside, &opening);
}

EXPORT void rondo_stored_close(struct rondo_stored *stored)
{
    stored_close(stored);
}

EXPORT int rondo_stored_layout(struct rondo_stored *stored, const char **out, size_t *len)
{
    *out = text_get(&stored->layout);
    *len = stored->layout.len;
    return 0;
}

struct state_ask {
    struct rondo_stored *stored;
    uint32_t rank;
    const char **out;
    size_t *len;
};

static int state_inside(void *arg)
{
    const struct state_ask *ask = arg;

    return stored_state(ask->stored, ask->rank, ask->out, ask->len);
}

EXPORT int rondo_stored_state(struct rondo_stored *stored, uint32_t rank, const char **out,
                              size_t *len)
{
    struct state_ask ask = {stored, rank, out, len};

    return edge_run(state_inside, &ask);
}

struct load_ask {
    struct rondo_stored *stored;
    struct rondo_load *load;
};

static int load_inside(void *arg)
{
    const struct load_ask *ask = arg;

    return stored_load(ask->stored, ask->load);
}

EXPORT int rondo_load_sharded(struct rondo_stored *stored, struct rondo_load *load)
{
    struct load_ask ask = {stored, load};

    if (!member_is_here())
        return not_here();
    if (!load || load->size < sizeof *load || !load->layout || load->layout_len > LAYOUT_BYTES_MAX)
        return member_fail(RONDO_INVALID, "rondo_load_sharded: struct rondo_load");
    return edge_run(load_inside, &ask);
}
