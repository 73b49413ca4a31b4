#include "rpc/ticket.h"
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

/* Bytes: MAGIC, job u64, attempt u32, expires i64, then texts (u16 length, bytes): audience,
 * bearer, path, digest; u16 count, that many texts; 32 bytes of HMAC over all before. Big-endian.
 */
#define MAGIC        "RTK1"
#define MAGIC_LEN    4
#define MAC_BYTES    32
#define FIXED_LEN    (MAGIC_LEN + 8 + 4 + 8)
#define NODE_LEN_MAX 255
#define PATH_LEN_MAX 4095
#define DIGEST_LEN   64

struct opened {
    struct ticket ticket; /* first: what ticket_open gives */
    const char *entries[TICKET_ENTRIES_MAX];
    struct arena *arena;
};

static bool mac_of(const unsigned char *key, const void *bytes, size_t len, unsigned char *mac)
{
    unsigned int mac_len = 0;

    return HMAC(EVP_sha256(), key, TICKET_KEY_BYTES, bytes, len, mac, &mac_len) &&
           mac_len == MAC_BYTES;
}

void ticket_key(const unsigned char *root, const char *node, unsigned char *out)
{
    SCOPED_TEXT char *label = mem_printf("rondo ticket key 1:%s", node);

    if (!mac_of(root, label, strlen(label), out))
        abort(); /* out of memory: see base/mem.h */
}

/* "a/b": relative, no empty part, no "." or "..". */
static bool path_ok(const char *path)
{
    size_t total = strnlen(path, PATH_LEN_MAX + 1);

    if (total == 0 || total > PATH_LEN_MAX || path[total - 1] == '/' || !text_is_utf8(path, total))
        return false;
    for (const char *part = path; *part;) {
        size_t len = strcspn(part, "/");
        if (len == 0 || (len == 1 && part[0] == '.') ||
            (len == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part += len;
        part += *part == '/';
    }
    return true;
}

static bool name_ok(const char *name)
{
    size_t len = name ? strnlen(name, NODE_LEN_MAX + 1) : 0;

    return len > 0 && len <= NODE_LEN_MAX && !strchr(name, '/') && text_is_utf8(name, len);
}

static bool digest_ok(const char *digest)
{
    return digest && strnlen(digest, DIGEST_LEN + 1) == DIGEST_LEN &&
           strspn(digest, "0123456789abcdef") == DIGEST_LEN;
}

static enum status check(const struct ticket *ticket, struct error *err)
{
    if (!name_ok(ticket->audience) || !name_ok(ticket->bearer))
        return error_set(err, STATUS_INVALID, "a ticket needs the names of two nodes");
    if (!ticket->path || !path_ok(ticket->path) || !digest_ok(ticket->digest))
        return error_set(err, STATUS_INVALID, "a ticket needs a checkpoint's path and digest");
    if (ticket->entries_count == 0 || ticket->entries_count > TICKET_ENTRIES_MAX)
        return error_set(err, STATUS_INVALID, "a ticket is for 1 to %d entries",
                         TICKET_ENTRIES_MAX);
    for (size_t i = 0; i < ticket->entries_count; i++)
        if (!path_ok(ticket->entries[i]))
            return error_set(err, STATUS_INVALID, "entry %zu is no path inside a checkpoint", i);
    return STATUS_OK;
}

static void put_number(struct text *out, uint64_t value, unsigned bytes)
{
    while (bytes-- > 0) {
        unsigned char byte = (unsigned char)(value >> (8 * bytes));
        text_add_bytes(out, &byte, 1);
    }
}

static void put_text(struct text *out, const char *piece)
{
    size_t len = strlen(piece);

    put_number(out, len, 2);
    text_add_bytes(out, piece, len);
}

enum status ticket_sign(const struct ticket *ticket, const unsigned char *key, struct text *out,
                        struct error *err)
{
    struct text body;
    unsigned char mac[MAC_BYTES];
    enum status st = check(ticket, err);

    if (st != STATUS_OK)
        return st;
    text_init(&body, TICKET_BYTES_MAX - MAC_BYTES);
    text_add_bytes(&body, MAGIC, MAGIC_LEN);
    put_number(&body, ticket->job, 8);
    put_number(&body, ticket->attempt, 4);
    put_number(&body, (uint64_t)ticket->expires_us, 8);
    put_text(&body, ticket->audience);
    put_text(&body, ticket->bearer);
    put_text(&body, ticket->path);
    put_text(&body, ticket->digest);
    put_number(&body, ticket->entries_count, 2);
    for (size_t i = 0; i < ticket->entries_count; i++)
        put_text(&body, ticket->entries[i]);
    if (body.full)
        st = error_set(err, STATUS_INVALID, "a ticket of more than %zu bytes", TICKET_BYTES_MAX);
    else if (!mac_of(key, body.data, body.len, mac))
        st = error_set(err, STATUS_INTERNAL, "sign a ticket");
    if (st == STATUS_OK) {
        text_add_bytes(out, body.data, body.len);
        text_add_bytes(out, mac, sizeof(mac));
    }
    text_fini(&body);
    return st;
}

struct cursor {
    const unsigned char *at;
    size_t left;
    bool bad;
};

static uint64_t take_number(struct cursor *in, unsigned bytes)
{
    uint64_t value = 0;

    if (in->bad || in->left < bytes) {
        in->bad = true;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | in->at[i];
    in->at += bytes;
    in->left -= bytes;
    return value;
}

/* "" when there is none. A NUL inside would make two readings of one text: bad. */
static const char *take_text(struct cursor *in, struct arena *arena)
{
    size_t len = (size_t)take_number(in, 2);
    char *copy;

    if (in->bad || len > in->left || len > PATH_LEN_MAX || memchr(in->at, 0, len)) {
        in->bad = true;
        return "";
    }
    copy = arena_alloc(arena, len + 1);
    memcpy(copy, in->at, len);
    in->at += len;
    in->left -= len;
    return copy;
}

static struct opened *opened_read(const unsigned char *bytes, size_t len)
{
    struct cursor in = {bytes + MAGIC_LEN, len - MAGIC_LEN, false};
    struct opened *opened = NEW(struct opened);
    struct ticket *ticket = &opened->ticket;

    opened->arena = arena_create(4 * TICKET_BYTES_MAX);
    ticket->job = take_number(&in, 8);
    ticket->attempt = (uint32_t)take_number(&in, 4);
    ticket->expires_us = (int64_t)take_number(&in, 8);
    ticket->audience = take_text(&in, opened->arena);
    ticket->bearer = take_text(&in, opened->arena);
    ticket->path = take_text(&in, opened->arena);
    ticket->digest = take_text(&in, opened->arena);
    ticket->entries_count = (size_t)take_number(&in, 2);
    in.bad |= ticket->entries_count > TICKET_ENTRIES_MAX;
    for (size_t i = 0; !in.bad && i < ticket->entries_count; i++)
        opened->entries[i] = take_text(&in, opened->arena);
    ticket->entries = opened->entries;
    if (in.bad || in.left > 0 || check(ticket, NULL) != STATUS_OK) {
        ticket_close(ticket);
        return NULL;
    }
    return opened;
}

static enum status admit(const struct ticket *ticket, const struct ticket_gate *gate,
                         struct error *err)
{
    if (strcmp(ticket->audience, gate->node) != 0)
        return error_set(err, STATUS_DENIED, "the ticket is for node %.80s", ticket->audience);
    if (strcmp(ticket->bearer, gate->peer) != 0)
        return error_set(err, STATUS_DENIED, "the ticket was given to node %.80s", ticket->bearer);
    if (ticket->expires_us <= gate->now_us)
        return error_set(err, STATUS_DEADLINE, "the ticket has expired");
    if (ticket->expires_us > TICKET_LIFE_US_MAX &&
        ticket->expires_us - TICKET_LIFE_US_MAX > gate->now_us)
        return error_set(err, STATUS_DEADLINE, "the ticket lives longer than tickets do");
    return STATUS_OK;
}

enum status ticket_open(const void *bytes, size_t len, const struct ticket_gate *gate,
                        struct ticket **out, struct error *err)
{
    const unsigned char *raw = bytes;
    unsigned char mac[MAC_BYTES];
    struct opened *opened;
    enum status st;

    if (len < FIXED_LEN + MAC_BYTES || len > TICKET_BYTES_MAX)
        return error_set(err, STATUS_UNAUTHENTICATED, "a ticket of %zu bytes", len);
    len -= MAC_BYTES;
    if (!mac_of(gate->key, raw, len, mac))
        return error_set(err, STATUS_INTERNAL, "check a ticket");
    if (CRYPTO_memcmp(mac, raw + len, MAC_BYTES) != 0)
        return error_set(err, STATUS_UNAUTHENTICATED, "the ticket is not signed for this node");
    opened = memcmp(raw, MAGIC, MAGIC_LEN) == 0 ? opened_read(raw, len) : NULL;
    if (!opened)
        return error_set(err, STATUS_UNAUTHENTICATED, "malformed ticket");
    st = admit(&opened->ticket, gate, err);
    if (st != STATUS_OK)
        ticket_close(&opened->ticket);
    else
        *out = &opened->ticket;
    return st;
}

void ticket_close(struct ticket *ticket)
{
    struct opened *opened = ticket ? CONTAINER_OF(ticket, struct opened, ticket) : NULL;

    if (!opened)
        return;
    arena_destroy(opened->arena);
    mem_free(opened);
}

bool ticket_covers(const struct ticket *ticket, const char *file)
{
    if (!path_ok(file))
        return false;
    for (size_t i = 0; i < ticket->entries_count; i++) {
        size_t len = strlen(ticket->entries[i]);
        if (strncmp(file, ticket->entries[i], len) == 0 && (file[len] == '\0' || file[len] == '/'))
            return true;
    }
    return false;
}
