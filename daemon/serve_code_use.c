/* serve_code_use.c - before a job is submitted: is the code that it names stored?
 *
 * One question a digest to the store, and none for a digest that was found there lately: code is
 * deleted an hour after HaveCode begins to deny it (sql/0003_retention.sql), and what was found is
 * believed for a minute. */
#include "base/mem.h"
#include "daemon/serve_hub.h"
#include <stdio.h>
#include <string.h>

#define KNOWN_US  60000000
#define KNOWN_MAX 1024

struct code_known {
    int64_t until_us;
};
struct code_use {
    struct serve *serve;
    size_t count, waiting; /* waiting: questions without an answer, and one for the start */
    bool *missing;
    char (*digests)[65]; /* of each spec; "": names none */
    enum status st;
    struct error err;
    serve_code_use_done done;
    void *arg;
};
struct code_use_ask {
    struct code_use *use;
    size_t at; /* the first spec with this digest */
};

static bool is_known(const struct serve *serve, const char *digest)
{
    const struct code_known *known = map_get_text(serve->code_known, digest);

    return known && known->until_us > loop_now_us(serve->options.loop);
}

static void forget_all(struct serve *serve)
{
    size_t at = 0;

    for (struct code_known *known; (known = map_next(serve->code_known, &at));)
        mem_free(known);
    map_destroy(serve->code_known);
    serve->code_known = map_create();
}

static void remember(struct serve *serve, const char *digest)
{
    struct code_known *known = map_get_text(serve->code_known, digest);

    if (!known) {
        if (map_count(serve->code_known) >= KNOWN_MAX)
            forget_all(serve);
        known = NEW(struct code_known);
        map_put_text(serve->code_known, digest, known);
    }
    known->until_us = loop_now_us(serve->options.loop) + KNOWN_US;
}

static void use_leave(struct code_use *use)
{
    if (--use->waiting > 0)
        return;
    use->done(use->arg, use->st, use->st == STATUS_OK ? NULL : &use->err, use->missing);
    mem_free(use->missing);
    mem_free(use->digests);
    mem_free(use);
}

static void use_answered(void *arg, enum status st, const struct error *err,
                         const ProtobufCMessage *message)
{
    struct code_use_ask *ask = arg;
    struct code_use *use = ask->use;
    const Pb__HaveCodeReply *reply = (const Pb__HaveCodeReply *)(const void *)message;
    const char *digest = use->digests[ask->at];

    if (st != STATUS_OK && use->st == STATUS_OK) {
        use->st = st;
        error_set(&use->err, st, "is the code stored? %.180s", err ? err->text : status_name(st));
    } else if (st == STATUS_OK && reply->have) {
        remember(use->serve, digest);
    } else if (st == STATUS_OK) {
        for (size_t i = ask->at; i < use->count; i++)
            use->missing[i] |= strcmp(use->digests[i], digest) == 0;
    }
    mem_free(ask);
    use_leave(use);
}

static bool seen_before(const struct code_use *use, const struct map *asked, size_t at)
{
    return map_get_text(asked, use->digests[at]) != NULL;
}

static void use_ask(struct code_use *use, size_t at)
{
    Pb__CodeUse question = PB__CODE_USE__INIT;
    struct code_use_ask *ask = NEW(struct code_use_ask);

    ask->use = use;
    ask->at = at;
    question.digest = use->digests[at];
    use->waiting++;
    reader_ask(use->serve->options.reader, NULL, &question.base, use_answered, ask);
}

void serve_code_use(struct serve *serve, const Pb__JobSpec *const *specs, size_t count,
                    serve_code_use_done done, void *arg)
{
    struct code_use *use = NEW(struct code_use);
    struct map *asked = map_create();

    use->serve = serve;
    use->count = count;
    use->done = done;
    use->arg = arg;
    use->waiting = 1;
    use->missing = mem_array(count + 1, sizeof(*use->missing));
    use->digests = mem_array(count + 1, sizeof(*use->digests));
    for (size_t i = 0; i < count; i++) {
        const Pb__Code *code = specs[i] ? specs[i]->code : NULL;
        if (!code || code->on_nodes || !code->digest || strlen(code->digest) != 64)
            continue; /* job_check has let it pass: nothing is fetched */
        memcpy(use->digests[i], code->digest, 65);
        if (is_known(serve, use->digests[i]) || seen_before(use, asked, i))
            continue;
        map_put_text(asked, use->digests[i], use);
        use_ask(use, i);
    }
    map_destroy(asked);
    use_leave(use);
}

void serve_code_use_text(const Pb__JobSpec *spec, char *out, size_t cap)
{
    snprintf(out, cap,
             "code.digest: no code is stored under %.64s (code that is long unused is deleted); "
             "upload it by PutCode, as rondoctl submit does, and submit again",
             spec->code && spec->code->digest ? spec->code->digest : "");
}

void serve_code_use_fini(struct serve *serve)
{
    forget_all(serve);
    map_destroy(serve->code_known);
    serve->code_known = NULL;
}
