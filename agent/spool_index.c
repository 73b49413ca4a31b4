/* spool_index.c - see spool_index.h. */
#include "agent/spool_index.h"
#include "base/mem.h"
#include "checkpoint/digest.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void add_line(struct text *out, struct text *words)
{
    text_addf(out, "%08" PRIx32 " %s\n", digest_crc32c(0, text_get(words), words->len),
              text_get(words));
    text_fini(words);
}

static void add_piece(struct text *words, const struct spool_piece *piece)
{
    text_addf(words, " %s %" PRIu64 " %" PRIu64 " %u %" PRIu64 " %" PRId64 " %" PRId64 " %u",
              piece->tag, piece->from, piece->to, piece->count, piece->dropped, piece->step,
              piece->samples, piece->flags);
}

void spool_index_entry(struct text *out, uint64_t seq, bool thinned,
                       const struct spool_piece *pieces, size_t count)
{
    struct text words;
    text_init(&words, 0);
    text_addf(&words, "e %" PRIu64 " %d %zu", seq, thinned ? 1 : 0, count);
    for (size_t i = 0; i < count; i++)
        add_piece(&words, &pieces[i]);
    add_line(out, &words);
}

void spool_index_acked(struct text *out, uint64_t seq)
{
    struct text words;
    text_init(&words, 0);
    text_addf(&words, "a %" PRIu64, seq);
    add_line(out, &words);
}

void spool_index_base(struct text *out, const struct spool_piece *base)
{
    struct text words;
    text_init(&words, 0);
    text_addf(&words, "t %s %" PRIu64 " %" PRId64 " %" PRId64 " %u", base->tag, base->to,
              base->step, base->samples, base->flags);
    add_line(out, &words);
}

void spool_index_forget(struct text *out, const char *tag)
{
    struct text words;
    text_init(&words, 0);
    text_addf(&words, "f %s", tag);
    add_line(out, &words);
}

/* Words of one line, cut in place. */
struct words {
    char *at;
    bool bad;
};

static const char *next_word(struct words *words)
{
    char *start = words->at;
    if (!start || !*start) {
        words->bad = true;
        return "";
    }
    char *space = strchr(start, ' ');
    if (space)
        *space = '\0';
    words->at = space ? space + 1 : NULL;
    return start;
}

static uint64_t next_u64(struct words *words)
{
    uint64_t value = 0;
    if (!text_to_u64(next_word(words), 0, UINT64_MAX, &value))
        words->bad = true;
    return value;
}

static int64_t next_i64(struct words *words)
{
    int64_t value = 0;
    if (!text_to_i64(next_word(words), INT64_MIN, INT64_MAX, &value))
        words->bad = true;
    return value;
}

static void next_tag(struct words *words, char tag[SPOOL_TAG_MAX])
{
    const char *word = next_word(words);
    if (strlen(word) >= SPOOL_TAG_MAX || !*word)
        words->bad = true;
    else
        (void)snprintf(tag, SPOOL_TAG_MAX, "%s", word);
}

static bool parse_entry(struct words *words, const struct spool_index_events *events, void *arg)
{
    uint64_t seq = next_u64(words), thinned = next_u64(words), count = next_u64(words);
    if (words->bad || count == 0 || count > SPOOL_PIECES_MAX)
        return false;
    SCOPED(mem_free) void *memory = mem_array(count, sizeof(struct spool_piece));
    struct spool_piece *pieces = memory;
    for (size_t i = 0; i < count; i++) {
        struct spool_piece *piece = &pieces[i];
        next_tag(words, piece->tag);
        piece->from = next_u64(words);
        piece->to = next_u64(words);
        piece->count = (uint32_t)next_u64(words);
        piece->dropped = next_u64(words);
        piece->step = next_i64(words);
        piece->samples = next_i64(words);
        piece->flags = (uint32_t)next_u64(words);
        if (words->bad || piece->to < piece->from)
            return false;
    }
    events->entry(arg, seq, thinned != 0, pieces, count);
    return true;
}

static bool parse_base(struct words *words, const struct spool_index_events *events, void *arg)
{
    struct spool_piece base = {.from = 0};
    next_tag(words, base.tag);
    base.to = next_u64(words);
    base.step = next_i64(words);
    base.samples = next_i64(words);
    base.flags = (uint32_t)next_u64(words);
    if (!words->bad)
        events->base(arg, &base);
    return !words->bad;
}

static bool parse_line(char *line, const struct spool_index_events *events, void *arg)
{
    unsigned crc;
    int used = 0;
    char tag[SPOOL_TAG_MAX];
    if (sscanf(line, "%8x %n", &crc, &used) != 1 || used != 9 ||
        digest_crc32c(0, line + used, strlen(line + used)) != crc)
        return false;
    struct words words = {line + used, false};
    const char *kind = next_word(&words);
    if (strcmp(kind, "e") == 0)
        return parse_entry(&words, events, arg);
    if (strcmp(kind, "t") == 0)
        return parse_base(&words, events, arg);
    if (strcmp(kind, "a") == 0) {
        uint64_t seq = next_u64(&words);
        if (!words.bad)
            events->acked(arg, seq);
        return !words.bad;
    }
    if (strcmp(kind, "f") != 0)
        return false;
    next_tag(&words, tag);
    if (!words.bad)
        events->forget(arg, tag);
    return !words.bad;
}

size_t spool_index_parse(const char *bytes, size_t len, const struct spool_index_events *events,
                         void *arg)
{
    size_t at = 0;
    while (at < len) {
        const char *end = memchr(bytes + at, '\n', len - at);
        if (!end)
            break;
        size_t size = (size_t)(end - bytes) - at;
        SCOPED_TEXT char *line = mem_alloc(size + 1);
        memcpy(line, bytes + at, size);
        if (strlen(line) != size || !parse_line(line, events, arg))
            break;
        at += size + 1;
    }
    return at;
}
