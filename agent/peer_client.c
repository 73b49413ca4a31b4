#include "agent/peer_client.h"
#include "base/file.h"
#include "checkpoint/digest.h"
#include "checkpoint/vault_tree.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IN_FLIGHT   4
#define PART_PREFIX ".get-"

struct peer_client {
    struct peer_client_options options;
    struct peer_link *link;
    unsigned char *piece; /* PEER_LINK_PIECE */
    uint64_t received;
    bool broken; /* answers may still be on their way: of no use for another file */
};

/* Reads the text behind a status that is not OK. */
static enum status refused(struct peer_client *client, unsigned char code, struct error *err)
{
    unsigned char head[2];
    char text[PEER_LINK_TEXT_MAX + 1];
    uint32_t limit_ms = client->options.limit_ms;
    enum status st = peer_link_read(client->link, head, 2, limit_ms, err);
    size_t len = st == STATUS_OK ? (size_t)peer_link_get(head, 2) : 0;

    if (len > PEER_LINK_TEXT_MAX || code > STATUS_UNAUTHENTICATED)
        return error_set(err, STATUS_INTERNAL, "node %s speaks otherwise", client->options.node);
    if (st == STATUS_OK)
        st = peer_link_read(client->link, text, len, limit_ms, err);
    if (st != STATUS_OK || code == 0)
        return st;
    text[len] = '\0';
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ')
            text[i] = '?';
    if (code == STATUS_EXHAUSTED || code == STATUS_CANCELLED)
        code = STATUS_UNAVAILABLE; /* it is the other node's room and will, not ours */
    return error_set(err, (enum status)code, "node %s: %s", client->options.node, text);
}

static enum status greet(struct peer_client *client, struct error *err)
{
    const struct peer_client_options *options = &client->options;
    unsigned char head[4];
    enum status st;

    peer_link_put(head, options->ticket_len, 4);
    st = peer_link_write(client->link, head, 4, options->limit_ms, err);
    if (st == STATUS_OK)
        st = peer_link_write(client->link, options->ticket, options->ticket_len, options->limit_ms,
                             err);
    if (st == STATUS_OK)
        st = peer_link_read(client->link, head, 1, options->limit_ms, err);
    return st == STATUS_OK ? refused(client, head[0], err) : st;
}

enum status peer_client_open(const struct peer_client_options *options, struct peer_client **out,
                             struct error *err)
{
    SCOPED(peer_client_close) struct peer_client *client = NEW(struct peer_client);
    SSL_CTX *context = NULL;
    enum status st = peer_link_context(&options->files, &context, err);

    client->options = *options;
    if (!options->limit_ms)
        client->options.limit_ms = 20000;
    if (st == STATUS_OK)
        st = peer_link_connect(context, options->address, options->port, client->options.limit_ms,
                               options->stop, &client->link, err);
    SSL_CTX_free(context);
    if (st == STATUS_OK && strcmp(peer_link_name(client->link), options->node) != 0)
        st = error_set(err, STATUS_UNAUTHENTICATED, "%s port %u is node %.80s, not %.80s",
                       options->address, (unsigned)options->port, peer_link_name(client->link),
                       options->node);
    if (st == STATUS_OK)
        st = greet(client, err);
    if (st != STATUS_OK)
        return st;
    client->piece = mem_alloc(PEER_LINK_PIECE);
    *out = TAKE(client);
    return STATUS_OK;
}

void peer_client_close(struct peer_client *client)
{
    if (!client)
        return;
    peer_link_close(client->link);
    mem_free(client->piece);
    mem_free(client);
}

uint64_t peer_client_received(const struct peer_client *client)
{
    return client->received;
}

/* --- one file */
struct fetch {
    struct peer_client *client;
    const struct manifest_file *file;
    int fd;
    uint64_t asked, have;
};

static uint32_t piece_at(const struct fetch *fetch, uint64_t at)
{
    uint64_t left = fetch->file->bytes - at;

    return left < PEER_LINK_PIECE ? (uint32_t)left : PEER_LINK_PIECE;
}

static enum status request(struct peer_client *client, const char *name, uint64_t at,
                           uint32_t piece, struct error *err)
{
    unsigned char frame[PEER_LINK_REQUEST + PEER_LINK_NAME_MAX];
    size_t len = strlen(name);

    peer_link_put(frame, at, 8);
    peer_link_put(frame + 8, piece, 4);
    peer_link_put(frame + 12, len, 2);
    memcpy(frame + PEER_LINK_REQUEST, name, len);
    return peer_link_write(client->link, frame, PEER_LINK_REQUEST + len, client->options.limit_ms,
                           err);
}

static enum status ask(struct fetch *fetch, struct error *err)
{
    uint64_t at = fetch->asked;
    uint32_t piece = piece_at(fetch, at);

    fetch->asked += piece;
    return request(fetch->client, fetch->file->path, at, piece, err);
}

/* The head of an answer; a refusal is an error. */
static enum status answer(struct peer_client *client, uint64_t *bytes, uint32_t *len,
                          struct error *err)
{
    unsigned char head[13];
    uint32_t limit_ms = client->options.limit_ms;
    enum status st = peer_link_read(client->link, head, 1, limit_ms, err);

    if (st == STATUS_OK && head[0] != 0)
        st = refused(client, head[0], err);
    else if (st == STATUS_OK)
        st = peer_link_read(client->link, head + 1, sizeof(head) - 1, limit_ms, err);
    if (st != STATUS_OK)
        return st;
    *bytes = peer_link_get(head + 1, 8);
    *len = (uint32_t)peer_link_get(head + 9, 4);
    return STATUS_OK;
}

static enum status take(struct fetch *fetch, struct error *err)
{
    struct peer_client *client = fetch->client;
    uint64_t bytes = 0;
    uint32_t limit_ms = client->options.limit_ms, want = piece_at(fetch, fetch->have), len = 0;
    enum status st = answer(client, &bytes, &len, err);

    if (st != STATUS_OK)
        return st;
    if (bytes != fetch->file->bytes || len != want)
        return error_set(err, STATUS_DATA_LOSS, "%s has another size on node %s", fetch->file->path,
                         client->options.node);
    st = peer_link_read(client->link, client->piece, want, limit_ms, err);
    if (st == STATUS_OK)
        st = file_write_at(fetch->fd, client->piece, want, fetch->have, err);
    if (st == STATUS_OK) {
        fetch->have += want;
        client->received += want;
        if (client->options.count)
            atomic_fetch_add(client->options.count, want);
    }
    return st;
}

static enum status receive(struct fetch *fetch, struct error *err)
{
    enum status st = fetch->client->broken
                         ? error_set(err, STATUS_UNAVAILABLE, "the connection has ended")
                         : STATUS_OK;

    while (st == STATUS_OK && fetch->have < fetch->file->bytes) {
        while (st == STATUS_OK && fetch->asked < fetch->file->bytes &&
               fetch->asked - fetch->have < (uint64_t)IN_FLIGHT * PEER_LINK_PIECE)
            st = ask(fetch, err);
        if (st == STATUS_OK)
            st = take(fetch, err);
    }
    fetch->client->broken |= st != STATUS_OK;
    return st;
}

/* Every byte from the disk, also those of an earlier fetch; synced. */
static enum status check(const struct fetch *fetch, struct error *err)
{
    struct digest_file got;
    const struct manifest_file *file = fetch->file;
    const struct peer_client_options *options = &fetch->client->options;
    enum status st = digest_fd(fetch->fd, file->path, true, options->stop, &got, err);

    if (st == STATUS_OK && (got.bytes != file->bytes || got.crc32c != file->crc32c ||
                            strcmp(got.xxh3, file->xxh3) != 0))
        st =
            error_set(err, STATUS_DATA_LOSS, "%.120s from node %.60s is not what the manifest says",
                      file->path, options->node);
    return st;
}

static bool is_here(const struct fetch *fetch, int dir, const char *leaf)
{
    SCOPED_FD int fd = -1;
    struct fetch there = *fetch;

    if (vault_tree_file(dir, leaf, &fd, NULL) != STATUS_OK)
        return false;
    there.fd = fd;
    return check(&there, NULL) == STATUS_OK;
}

/* Room for all of it, or for none: half a file helps nobody and takes the last room of others. */
static enum status reserve(const struct fetch *fetch, int dir, const char *part, struct error *err)
{
    if (fetch->file->bytes == 0 ||
        fallocate(fetch->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)fetch->file->bytes) == 0 ||
        (errno != ENOSPC && errno != EDQUOT))
        return STATUS_OK; /* a file system that cannot say so beforehand says so at the write */
    enum status st = error_set(err, STATUS_EXHAUSTED, "no room for %s, %" PRIu64 " bytes: %s",
                               fetch->file->path, fetch->file->bytes, strerror(errno));
    (void)unlinkat(dir, part, 0);
    return st;
}

static enum status begin(struct fetch *fetch, int dir, const char *part, struct error *err)
{
    struct stat info;

    fetch->fd = openat(dir, part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
    if (fetch->fd < 0 || fstat(fetch->fd, &info) != 0)
        return error_set(err, file_status(errno), "create %s: %s", fetch->file->path,
                         strerror(errno));
    if (!S_ISREG(info.st_mode))
        return error_set(err, STATUS_INVALID, "%s is no file", part);
    if ((uint64_t)info.st_size > fetch->file->bytes && ftruncate(fetch->fd, 0) != 0)
        return error_set(err, file_status(errno), "truncate %s: %s", part, strerror(errno));
    fetch->have = (uint64_t)info.st_size > fetch->file->bytes ? 0 : (uint64_t)info.st_size;
    fetch->asked = fetch->have;
    return reserve(fetch, dir, part, err);
}

static enum status fetch_into(struct fetch *fetch, int dir, const char *leaf, struct error *err)
{
    char part[300];
    enum status st;

    if (is_here(fetch, dir, leaf))
        return STATUS_OK;
    (void)snprintf(part, sizeof(part), PART_PREFIX "%.16s-%08x", fetch->file->xxh3,
                   fetch->file->crc32c);
    st = begin(fetch, dir, part, err);
    if (st == STATUS_OK)
        st = receive(fetch, err);
    if (st == STATUS_OK)
        st = check(fetch, err);
    if (st == STATUS_DATA_LOSS || st == STATUS_EXHAUSTED)
        (void)unlinkat(dir, part, 0);
    if (st == STATUS_OK && (renameat(dir, part, dir, leaf) != 0 || fsync(dir) != 0))
        st =
            error_set(err, file_status(errno), "rename %s: %s", fetch->file->path, strerror(errno));
    return st;
}

enum status peer_client_fetch(struct peer_client *client, const struct manifest_file *file,
                              struct error *err)
{
    const struct peer_client_options *options = &client->options;
    struct fetch fetch = {.client = client, .file = file, .fd = -1};
    const char *slash = strrchr(file->path, '/'), *leaf = slash ? slash + 1 : file->path;
    SCOPED_FD int dir = -1;
    enum status st;

    if (!vault_tree_path_ok(file->path))
        return error_set(err, STATUS_INVALID, "'%.80s' is no path in a checkpoint", file->path);
    SCOPED_TEXT char *below = mem_printf("%s%s%.*s", options->path, slash ? "/" : "",
                                         slash ? (int)(slash - file->path) : 0, file->path);
    st = vault_tree_open(options->vault, below, true, &dir, err);
    if (st == STATUS_OK)
        st = fetch_into(&fetch, dir, leaf, err);
    vault_tree_close(fetch.fd);
    return st;
}

/* --- the manifest */
static enum status manifest_piece(struct peer_client *client, struct text *out, uint64_t *bytes,
                                  struct error *err)
{
    uint32_t len = 0;
    enum status st = request(client, MANIFEST_NAME, out->len, PEER_LINK_PIECE, err);

    if (st == STATUS_OK)
        st = answer(client, bytes, &len, err);
    if (st != STATUS_OK)
        return st;
    if (*bytes > MANIFEST_BYTES_MAX || len > PEER_LINK_PIECE || len == 0 || out->len + len > *bytes)
        return error_set(err, STATUS_DATA_LOSS, "the manifest on node %s is no manifest",
                         client->options.node);
    st = peer_link_read(client->link, client->piece, len, client->options.limit_ms, err);
    if (st == STATUS_OK)
        text_add_bytes(out, client->piece, len);
    return st;
}

enum status peer_client_manifest(struct peer_client *client, const char *digest, struct text *out,
                                 struct error *err)
{
    char found[65];
    uint64_t bytes = 1;
    enum status st =
        client->broken ? error_set(err, STATUS_UNAVAILABLE, "the connection has ended") : STATUS_OK;

    text_reset(out);
    while (st == STATUS_OK && out->len < bytes && !out->full)
        st = manifest_piece(client, out, &bytes, err);
    client->broken |= st != STATUS_OK;
    if (st != STATUS_OK)
        return st;
    digest_sha256(text_get(out), out->len, found);
    if (out->full || strcmp(found, digest) != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "the manifest on node %s is not the one that was committed",
                         client->options.node);
    return STATUS_OK;
}
