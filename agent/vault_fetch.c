/* vault_fetch.c - see vault_fetch.h. */
#include "agent/vault_fetch.h"
#include "agent/peer_client.h"
#include "base/log.h"
#include "checkpoint/digest.h"
#include "checkpoint/vault.h"
#include "checkpoint/vault_tree.h"
#include "proto/text/message.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct source {
    const Pb__FetchSource *said;
    struct peer_client *client;
    bool over; /* of no use in this run */
};
struct run {
    struct vault_job *job;
    struct vault_fetch *fetch;
    struct source *sources;
    struct text bytes; /* of the manifest */
    struct manifest *manifest;
    struct error why;  /* the last thing that went wrong with a source */
    const char *given; /* who gave something */
};

struct vault_fetch *vault_fetch_create(const Pb__DesiredFetch *wanted,
                                       const struct peer_link_files *files)
{
    struct vault_fetch *fetch = NEW(struct vault_fetch);

    fetch->wanted = (Pb__DesiredFetch *)message_copy(&wanted->base);
    fetch->files = *files;
    return fetch;
}

void vault_fetch_destroy(struct vault_fetch *fetch)
{
    if (!fetch)
        return;
    pb__desired_fetch__free_unpacked(fetch->wanted, NULL);
    for (size_t i = 0; i < fetch->copies_count; i++)
        pb__shard_copy__free_unpacked(fetch->copies[i], NULL);
    mem_free(fetch->copies);
    mem_free(fetch);
}

/* --- sources */
static enum status source_open(struct run *run, struct source *source, struct error *err)
{
    const Pb__FetchSource *said = source->said;
    struct vault_job *job = run->job;
    char address[PEER_LINK_ADDRESS];
    struct peer_client_options options = {
        .address = address,
        .port = (uint16_t)said->port,
        .node = said->node,
        .files = run->fetch->files,
        .ticket = said->ticket.data,
        .ticket_len = said->ticket.len,
        .vault = job->vault,
        .path = job->path,
        .stop = &job->stop,
        .count = &job->done_bytes,
    };

    if (source->client)
        return STATUS_OK;
    if (!said->address || !said->port || !said->ticket.len)
        return error_set(err, STATUS_UNAVAILABLE, "node %.100s is not there", said->node);
    if (said->port > UINT16_MAX)
        return error_set(err, STATUS_INVALID, "node %.100s has no port", said->node);
    enum status st = peer_link_resolve(said->address, address, err);
    return st == STATUS_OK ? peer_client_open(&options, &source->client, err) : st;
}

static bool has_part(const Pb__FetchSource *said, const struct manifest_part *part)
{
    for (size_t i = 0; i < said->n_parts; i++)
        if (said->parts[i]->rank == part->rank && said->parts[i]->role &&
            strcmp(said->parts[i]->role, part->role) == 0)
            return true;
    return false;
}

/* Nothing to do with who sends. */
static bool is_ours(enum status st)
{
    return st == STATUS_EXHAUSTED || st == STATUS_CANCELLED;
}

/* Bytes that are not there, or not right, will not be so a second time. */
static bool is_final(enum status st)
{
    return st == STATUS_DATA_LOSS || st == STATUS_NOT_FOUND;
}

static void note(struct vault_fetch *fetch, const char *what, const char *who)
{
    size_t len = strlen(fetch->note);

    (void)snprintf(fetch->note + len, sizeof(fetch->note) - len, "%s%s%.100s", len ? "; " : "",
                   what, who);
}

static void blame(struct run *run, struct source *source, const struct error *err)
{
    log_warn("fetch.source", log_str("node", source->said->node), log_str("path", run->job->path),
             log_err(err));
    if (is_final(err->code))
        note(run->fetch, "", err->text);
    run->why = *err;
    peer_client_close(source->client);
    source->client = NULL;
    source->over = !is_final(err->code); /* other parts of it may be good */
}

/* --- the manifest */
static bool manifest_is_told(const struct run *run)
{
    char digest[65];

    digest_sha256(run->bytes.data, run->bytes.len, digest);
    return run->bytes.len && strcmp(digest, run->fetch->wanted->manifest_digest) == 0;
}

static bool manifest_is_here(struct run *run)
{
    SCOPED_FD int dir = -1;

    return vault_tree_open(run->job->vault, run->job->path, false, &dir, NULL) == STATUS_OK &&
           vault_tree_read(dir, MANIFEST_NAME, &run->bytes, NULL) == STATUS_OK &&
           manifest_is_told(run);
}

static enum status manifest_fetch(struct run *run, struct error *err)
{
    const Pb__DesiredFetch *wanted = run->fetch->wanted;
    enum status st = STATUS_UNAVAILABLE, worst = wanted->n_sources ? STATUS_DATA_LOSS : st;

    run->why = (struct error){STATUS_UNAVAILABLE, "nobody is known to have it"};
    for (size_t i = 0; st != STATUS_OK && i < wanted->n_sources; i++) {
        struct error why = {STATUS_OK, ""};
        text_reset(&run->bytes);
        st = source_open(run, &run->sources[i], &why);
        if (st == STATUS_OK)
            st = peer_client_manifest(run->sources[i].client, wanted->manifest_digest, &run->bytes,
                                      &why);
        if (st != STATUS_OK)
            blame(run, &run->sources[i], &why);
        if (is_ours(st))
            return error_set(err, st, "%s", why.text);
        if (!is_final(st))
            worst = st;
    }
    return st == STATUS_OK ? st : error_set(err, worst, "%s", run->why.text);
}

static enum status manifest_get(struct run *run, struct error *err)
{
    enum status st = STATUS_OK;

    if (!manifest_is_here(run))
        st = manifest_fetch(run, err);
    if (st == STATUS_OK)
        st = manifest_parse(run->bytes.data, run->bytes.len, &run->manifest, err);
    return st;
}

/* --- parts */
static enum status fetch_files(struct run *run, struct source *source,
                               const struct manifest_part *part, struct error *err)
{
    enum status st = source_open(run, source, err);

    for (size_t i = 0; st == STATUS_OK && i < part->files_count; i++)
        st = peer_client_fetch(source->client, &part->files[i], err);
    return st;
}

static enum status fetch_part(struct run *run, const struct manifest_part *part, struct error *err)
{
    const Pb__DesiredFetch *wanted = run->fetch->wanted;
    enum status st = STATUS_UNAVAILABLE, worst = STATUS_DATA_LOSS;

    for (size_t i = 0; i < wanted->n_sources; i++) {
        struct source *source = &run->sources[i];
        struct error why = {STATUS_OK, ""};
        if (!has_part(source->said, part))
            continue;
        st = source->over ? STATUS_UNAVAILABLE : fetch_files(run, source, part, &why);
        if (st == STATUS_OK) {
            if (!run->given || strcmp(run->given, source->said->node) != 0)
                note(run->fetch, "from node ", run->given = source->said->node);
            return STATUS_OK;
        }
        if (is_ours(st))
            return error_set(err, st, "fetch %s: %s", run->job->path, why.text);
        if (!source->over)
            blame(run, source, &why);
        if (!is_final(st))
            worst = st; /* it may have the right bytes */
    }
    return error_set(err, worst, "part %.60s-%u: %s", part->role, part->rank, run->why.text);
}

static void add_copy(struct run *run, const struct manifest_part *part)
{
    struct vault_fetch *fetch = run->fetch;
    Pb__ShardCopy *copy = NEW(Pb__ShardCopy);

    pb__shard_copy__init(copy);
    copy->role = mem_strdup(part->role);
    copy->vault = mem_strdup(fetch->wanted->vault);
    copy->has_rank = copy->has_durability = copy->has_bytes = copy->has_made_us = true;
    copy->rank = part->rank;
    copy->durability = PB__SHARD_COPY__DURABILITY__NODE;
    for (size_t i = 0; i < part->files_count; i++)
        copy->bytes += part->files[i].bytes;
    copy->made_us = (int64_t)time(NULL) * 1000000;
    fetch->copies = mem_resize(fetch->copies, fetch->copies_count + 1, sizeof(*fetch->copies));
    fetch->copies[fetch->copies_count++] = copy;
}

static bool is_needed(const struct run *run, const struct manifest_part *part)
{
    const Pb__DesiredFetch *wanted = run->fetch->wanted;

    for (size_t i = 0; i < wanted->n_sources; i++)
        if (has_part(wanted->sources[i], part))
            return true;
    return false;
}

/* There is no room for all: what came would only take it from others. Parts that the node wrote
 * itself are none of those that are needed. */
static void give_room_back(struct run *run)
{
    const struct vault_job *job = run->job;
    const char *slash = strrchr(job->path, '/');
    int dir = -1;

    if (!run->manifest || manifest_is_here(run) ||
        vault_tree_open(job->vault, job->path, false, &dir, NULL) != STATUS_OK)
        return;
    for (size_t i = 0; i < run->manifest->parts_count; i++) {
        const struct manifest_part *part = &run->manifest->parts[i];
        SCOPED_TEXT char *name = mem_printf("%s-%u", part->role, part->rank);
        if (is_needed(run, part))
            (void)!vault_tree_remove(dir, name, NULL);
    }
    vault_tree_close(dir);
    SCOPED_TEXT char *above = mem_printf("%.*s", (int)(slash ? slash - job->path : 0), job->path);
    if (!slash || vault_tree_open(job->vault, above, false, &dir, NULL) != STATUS_OK)
        return;
    (void)unlinkat(dir, slash + 1, AT_REMOVEDIR); /* when nothing else is in it */
    vault_tree_close(dir);
}

static enum status fetch_parts(struct run *run, bool all_here, struct error *err)
{
    enum status st = STATUS_OK;

    for (size_t i = 0; st == STATUS_OK && i < run->manifest->parts_count; i++) {
        const struct manifest_part *part = &run->manifest->parts[i];
        bool needed = is_needed(run, part);
        if (needed && !all_here)
            st = fetch_part(run, part, err);
        if (needed && st == STATUS_OK)
            add_copy(run, part);
    }
    return st;
}

static enum status fetch(struct run *run, struct error *err)
{
    const struct vault_job *job = run->job;
    const char *digest = run->fetch->wanted->manifest_digest;
    bool all_here = vault_verify(job->vault, job->path, digest, false, NULL) == STATUS_OK;
    enum status st = manifest_get(run, err);

    if (st == STATUS_OK)
        st = fetch_parts(run, all_here, err);
    if (st != STATUS_OK || all_here)
        return st;
    run->fetch->came = true;
    st = vault_seal(job->vault, job->path, run->bytes.data, run->bytes.len, err);
    return st == STATUS_OK ? vault_verify(job->vault, job->path, digest, false, err) : st;
}

enum status vault_fetch_run(struct vault_job *job, struct error *err)
{
    struct run run = {.job = job, .fetch = job->fetch};
    const Pb__DesiredFetch *wanted = job->fetch->wanted;

    if (!wanted->manifest_digest)
        return error_set(err, STATUS_INVALID, "no digest of the manifest was told");
    text_init(&run.bytes, MANIFEST_BYTES_MAX);
    run.sources = mem_array(wanted->n_sources + 1, sizeof(*run.sources));
    for (size_t i = 0; i < wanted->n_sources; i++)
        run.sources[i].said = wanted->sources[i];
    enum status st = fetch(&run, err);
    if (st == STATUS_EXHAUSTED)
        give_room_back(&run);
    for (size_t i = 0; i < wanted->n_sources; i++)
        peer_client_close(run.sources[i].client);
    mem_free(run.sources);
    manifest_destroy(run.manifest);
    text_fini(&run.bytes);
    return st;
}
