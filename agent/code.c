/* code.c - see code.h. */
#include "agent/code.h"
#include "base/list.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FETCH_TRIES    5
#define FETCH_RETRY_US 1000000
#define UNPACK_FACTOR  4

struct waiter {
    struct list node;
    code_done done;
    void *arg;
};
struct code {
    struct code_cache *cache;
    char digest[65];
    enum code_state { CODE_FETCHING, CODE_UNPACKING, CODE_READY } state;
    struct list waiters;
    uint32_t uses;
    uint64_t bytes;    /* unpacked */
    uint64_t received; /* packed */
    int64_t used_us;
    struct text chunks; /* not yet written */
    bool writing, ended;
    enum status ended_st;
    char ended_text[240];
    uint32_t tries;
    struct loop_timer *retry;
};
struct code_cache {
    struct agent *agent;
    char *dir;
    struct map *codes; /* digest -> struct code */
};

struct code_cache *code_cache_create(struct agent *agent, const char *dir)
{
    struct code_cache *cache = NEW(struct code_cache);
    cache->agent = agent;
    cache->dir = mem_strdup(dir);
    cache->codes = map_create();
    return cache;
}

static void code_destroy(struct code *code)
{
    LIST_EACH(&code->waiters, node)
    mem_free(LIST_ITEM(node, struct waiter, node));
    text_fini(&code->chunks);
    loop_timer_destroy(code->retry);
    mem_free(code);
}

void code_cache_destroy(struct code_cache *cache)
{
    if (!cache)
        return;
    size_t at = 0;
    struct code *code;
    while ((code = map_next(cache->codes, &at)))
        code_destroy(code);
    map_destroy(cache->codes);
    mem_free(cache->dir);
    mem_free(cache);
}

bool code_digest_is_valid(const char *digest)
{
    return digest && strlen(digest) == 64 && strspn(digest, "0123456789abcdef") == 64;
}

static void code_retry(void *arg);

static struct code *code_create(struct code_cache *cache, const char *digest)
{
    struct code *code = NEW(struct code);
    code->cache = cache;
    memcpy(code->digest, digest, 65);
    list_init(&code->waiters);
    text_init(&code->chunks, (size_t)cache->agent->config->code_mib_max << 20);
    code->retry = loop_timer_create(cache->agent->loop, code_retry, code);
    (void)map_put_text(cache->codes, digest, code);
    return code;
}

static void remove_path(struct code_cache *cache, const char *path)
{
    struct files_batch *batch = files_batch_create();
    (void)files_step_add(batch, FILES_REMOVE, path);
    files_run(cache->agent->files, batch, NULL, NULL);
}

void code_cache_adopt(struct code_cache *cache, char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *dot = strrchr(names[i], '.');
        if (code_digest_is_valid(names[i])) {
            struct code *code = code_create(cache, names[i]);
            code->state = CODE_READY;
            continue;
        }
        uint64_t bytes = 0;
        char digest[65] = "";
        if (dot && dot - names[i] == 64)
            memcpy(digest, names[i], 64);
        struct code *code = map_get_text(cache->codes, digest); /* "<digest>.<bytes>" */
        if (code && text_to_u64(dot + 1, 0, UINT64_MAX, &bytes)) {
            code->bytes = bytes;
            continue;
        }
        SCOPED_TEXT char *path = mem_printf("%s/%s", cache->dir, names[i]);
        remove_path(cache, path);
    }
}

/* --- room */

static void evict(struct code_cache *cache)
{
    for (;;) {
        uint64_t bytes = 0;
        size_t at = 0;
        struct code *code, *oldest = NULL;
        while ((code = map_next(cache->codes, &at))) {
            if (code->state != CODE_READY)
                continue;
            bytes += code->bytes;
            if (code->uses == 0 && (!oldest || code->used_us < oldest->used_us))
                oldest = code;
        }
        if (!oldest || bytes <= cache->agent->config->code_keep_mib << 20)
            return;
        SCOPED_TEXT char *dir = mem_printf("%s/%s", cache->dir, oldest->digest);
        SCOPED_TEXT char *gone = mem_printf("%s/gone.%s", cache->dir, oldest->digest);
        SCOPED_TEXT char *size = mem_printf("%s.%" PRIu64, dir, oldest->bytes);
        struct files_batch *batch = files_batch_create();
        struct files_step *step = files_step_add(batch, FILES_RENAME, dir);
        step->to = mem_strdup(gone);
        step->missing_ok = true;
        (void)files_step_add(batch, FILES_REMOVE, size);
        (void)files_step_add(batch, FILES_REMOVE, gone);
        files_run(cache->agent->files, batch, NULL, NULL);
        (void)map_remove_text(cache->codes, oldest->digest);
        code_destroy(oldest);
    }
}

void code_cache_hold(struct code_cache *cache, const char *digest)
{
    struct code *code = map_get_text(cache->codes, digest);
    if (code)
        code->uses++;
}

void code_cache_release(struct code_cache *cache, const char *digest)
{
    struct code *code = map_get_text(cache->codes, digest);
    if (!code || code->uses == 0)
        return;
    code->uses--;
    code->used_us = loop_now_us(cache->agent->loop);
    evict(cache);
}

/* --- fetch */

static void answer_all(struct code *code, enum status st, const struct error *err)
{
    struct code_cache *cache = code->cache;
    SCOPED_TEXT char *dir = mem_printf("%s/%s", cache->dir, code->digest);
    struct list waiters;
    list_init(&waiters);
    for (struct list *node; (node = list_take_first(&code->waiters));)
        list_add_last(&waiters, node);
    if (st != STATUS_OK) {
        log_warn("code.failed", log_str("digest", code->digest), log_err(err));
        SCOPED_TEXT char *pack = mem_printf("%s/get.%s", cache->dir, code->digest);
        remove_path(cache, pack);
        (void)map_remove_text(cache->codes, code->digest);
        code_destroy(code);
    }
    for (struct list *node; (node = list_take_first(&waiters));) {
        struct waiter *waiter = LIST_ITEM(node, struct waiter, node);
        if (st == STATUS_OK)
            code->uses++;
        waiter->done(waiter->arg, st, err, dir);
        mem_free(waiter);
    }
}

static void code_unpacked(void *arg, enum status st, const struct error *err,
                          struct files_batch *batch)
{
    struct code *code = arg;
    if (st == STATUS_OK) {
        code->state = CODE_READY;
        code->bytes = batch->steps[1].size;
        SCOPED_TEXT char *path =
            mem_printf("%s/%s.%" PRIu64, code->cache->dir, code->digest, code->bytes);
        struct files_batch *size = files_batch_create();
        (void)files_write(size, path, "", 0, 0600);
        files_run(code->cache->agent->files, size, NULL, NULL);
        log_info("code.ready", log_str("digest", code->digest),
                 log_int("bytes", (int64_t)code->bytes));
    }
    struct code_cache *cache = code->cache;
    answer_all(code, st, err);
    evict(cache);
}

static void unpack_start(struct code *code)
{
    const char *dir = code->cache->dir;
    SCOPED_TEXT char *pack = mem_printf("%s/get.%s", dir, code->digest);
    SCOPED_TEXT char *temp = mem_printf("%s/new.%s", dir, code->digest);
    struct files_batch *batch = files_batch_create();
    (void)files_step_add(batch, FILES_REMOVE, temp);
    struct files_step *step = files_step_add(batch, FILES_UNPACK, pack);
    step->to = mem_strdup(temp);
    step->max = ((size_t)code->cache->agent->config->code_mib_max << 20) * UNPACK_FACTOR;
    memcpy(step->hex, code->digest, sizeof(step->hex));
    step = files_step_add(batch, FILES_RENAME, temp);
    step->to = mem_printf("%s/%s", dir, code->digest);
    (void)files_step_add(batch, FILES_REMOVE, pack);
    code->state = CODE_UNPACKING;
    files_run(code->cache->agent->files, batch, code_unpacked, code);
}

static void code_retry_later(struct code *code, enum status st, const char *text)
{
    struct error err;
    bool hopeless = st == STATUS_NOT_FOUND || st == STATUS_DENIED || st == STATUS_EXHAUSTED;
    if (!hopeless && ++code->tries < FETCH_TRIES) {
        loop_timer_set(code->retry, FETCH_RETRY_US);
        return;
    }
    (void)error_set(&err, st, "fetch code %.12s: %s", code->digest, text);
    answer_all(code, st, &err);
}

static void write_some(struct code *code);

static void code_written(void *arg, enum status st, const struct error *err,
                         struct files_batch *batch)
{
    struct code *code = arg;
    (void)batch;
    code->writing = false;
    if (st != STATUS_OK && (!code->ended || code->ended_st == STATUS_OK)) {
        code->ended_st = st; /* what still comes is thrown away */
        (void)snprintf(code->ended_text, sizeof(code->ended_text), "%s", err->text);
        text_reset(&code->chunks);
    }
    write_some(code);
}

static void write_some(struct code *code)
{
    if (code->writing)
        return;
    if (code->chunks.len > 0 && code->ended_st == STATUS_OK) {
        SCOPED_TEXT char *pack = mem_printf("%s/get.%s", code->cache->dir, code->digest);
        struct files_batch *batch = files_batch_create();
        (void)files_append(batch, pack, text_get(&code->chunks), code->chunks.len);
        text_reset(&code->chunks);
        code->writing = true;
        files_run(code->cache->agent->files, batch, code_written, code);
        return;
    }
    if (!code->ended)
        return;
    if (code->ended_st == STATUS_OK)
        unpack_start(code);
    else
        code_retry_later(code, code->ended_st, code->ended_text);
}

static void code_chunk(void *arg, uint64_t total, const void *bytes, size_t len)
{
    struct code *code = arg;
    uint64_t most = code->cache->agent->config->code_mib_max << 20;
    if (code->ended_st != STATUS_OK)
        return;
    code->received += len;
    if (code->received > most || total > most) {
        code->ended_st = STATUS_EXHAUSTED;
        (void)snprintf(code->ended_text, sizeof(code->ended_text),
                       "it is larger than code_mib_max (%" PRIu64 " MiB)", most >> 20);
        return;
    }
    text_add_bytes(&code->chunks, bytes, len);
    write_some(code);
}

static void code_fetched(void *arg, enum status st, const char *text)
{
    struct code *code = arg;
    code->ended = true;
    if (code->ended_st == STATUS_OK && st != STATUS_OK) {
        code->ended_st = st;
        (void)snprintf(code->ended_text, sizeof(code->ended_text), "%s", text ? text : "");
    }
    write_some(code);
}

static const struct uplink_fetch_events fetch_events = {code_chunk, code_fetched};

static void code_fetch_cleared(void *arg, enum status st, const struct error *err,
                               struct files_batch *batch)
{
    struct code *code = arg;
    struct uplink *uplink = code->cache->agent->options.uplink;
    (void)batch;
    if (st != STATUS_OK) {
        code_retry_later(code, st, err->text);
        return;
    }
    uplink->ops->fetch(uplink, code->digest, &fetch_events, code);
}

static void fetch_start(struct code *code)
{
    SCOPED_TEXT char *pack = mem_printf("%s/get.%s", code->cache->dir, code->digest);
    struct files_batch *batch = files_batch_create();
    (void)files_step_add(batch, FILES_REMOVE, pack);
    code->state = CODE_FETCHING;
    code->received = 0;
    code->ended = false;
    code->ended_st = STATUS_OK;
    text_reset(&code->chunks);
    files_run(code->cache->agent->files, batch, code_fetch_cleared, code);
}

static void code_retry(void *arg)
{
    fetch_start(arg);
}

void code_cache_get(struct code_cache *cache, const char *digest, code_done done, void *arg)
{
    struct code *code = map_get_text(cache->codes, digest);
    if (code && code->state == CODE_READY) {
        SCOPED_TEXT char *dir = mem_printf("%s/%s", cache->dir, digest);
        code->uses++;
        done(arg, STATUS_OK, NULL, dir);
        return;
    }
    bool fresh = !code;
    if (fresh)
        code = code_create(cache, digest);
    struct waiter *waiter = NEW(struct waiter);
    waiter->done = done;
    waiter->arg = arg;
    list_add_last(&code->waiters, &waiter->node);
    if (fresh)
        fetch_start(code);
}
