/* layout_print.c - the canonical bytes of a table, and their digest. */
#include "checkpoint/json_text.h"
#include "checkpoint/layout_table.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Gathers what is printed, and hands it on to a text or to a digest. */
struct printer {
    struct text *text; /* NULL: the digest */
    XXH3_state_t digest;
    uint64_t bytes;
    struct text quoted; /* one name at a time */
    size_t len;
    char gathered[4096];
};

static void flush(struct printer *out)
{
    if (out->text)
        text_add_bytes(out->text, out->gathered, out->len);
    else
        (void)XXH3_128bits_update(&out->digest, out->gathered, out->len);
    out->bytes += out->len;
    out->len = 0;
}

static void add_bytes(struct printer *out, const char *bytes, size_t len)
{
    if (len > sizeof out->gathered - out->len)
        flush(out);
    memcpy(out->gathered + out->len, bytes, len); /* never more than it has room for */
    out->len += len;
}

static void add(struct printer *out, const char *text)
{
    add_bytes(out, text, strlen(text));
}

static void add_char(struct printer *out, char c)
{
    if (out->len == sizeof out->gathered)
        flush(out);
    out->gathered[out->len++] = c;
}

static void add_number(struct printer *out, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    add_bytes(out, digits + at, sizeof digits - at);
}

static void add_numbers(struct printer *out, const uint64_t *numbers, size_t count)
{
    add_char(out, '[');
    for (size_t i = 0; i < count; i++) {
        if (i)
            add_char(out, ',');
        add_number(out, numbers[i]);
    }
    add_char(out, ']');
}

static void add_quoted(struct printer *out, const char *text, size_t len)
{
    text_reset(&out->quoted);
    json_text_string(&out->quoted, text, len); /* escaped, it may be longer than what is gathered */
    for (size_t at = 0; at < out->quoted.len;) {
        size_t rest = out->quoted.len - at, room = sizeof out->gathered;
        size_t n = rest < room ? rest : room;
        add_bytes(out, out->quoted.data + at, n);
        at += n;
    }
}

static void add_grid(struct printer *out, const struct layout_class *class)
{
    add(out, "{\"kind\":\"grid\",\"cuts\":[");
    for (uint32_t d = 0; d < class->dims; d++) {
        if (d)
            add(out, ",");
        add_numbers(out, class->cuts + class->cuts_at[d], layout_class_intervals(class, d) + 1);
    }
    add(out, "],\"ranks\":[");
    for (uint32_t item = 0; item < class->items; item++) {
        add(out, item ? ",[" : "[");
        for (uint32_t i = class->holders_at[item]; i < class->holders_at[item + 1]; i++) {
            if (i > class->holders_at[item])
                add_char(out, ',');
            add_number(out, class->holders[i].rank);
        }
        add_char(out, ']');
    }
    add(out, "]}");
}

/* By rank, then piece. */
static void add_parts(struct printer *out, const struct layout_class *class)
{
    bool flat = class->kind == LAYOUT_FLAT;
    struct layout_box box;

    add(out, flat ? "{\"kind\":\"flat\",\"ranges\":[" : "{\"kind\":\"boxes\",\"boxes\":[");
    for (uint32_t i = 0; i < class->seats_count; i++) {
        struct layout_seat seat = class->seats[i];
        add(out, i ? ",[" : "[");
        add_number(out, seat.rank);
        add(out, ",");
        if (flat) {
            add_number(out, class->corners[2 * (size_t)seat.item]);
            add(out, ",");
            add_number(out, class->corners[2 * (size_t)seat.item + 1]);
        } else {
            (void)layout_class_box(class, seat.item, &box);
            add_numbers(out, box.offset, class->dims);
            add(out, ",");
            add_numbers(out, box.size, class->dims);
        }
        add(out, "]");
    }
    add(out, "]}");
}

static void add_tensor(struct printer *out, const struct layout_tensor *tensor)
{
    add(out, "[");
    add_quoted(out, tensor->name, tensor->name_len);
    add(out, ",\"");
    add(out, dtype_name(tensor->dtype));
    add(out, "\",");
    add_numbers(out, tensor->shape, tensor->dims);
    add(out, ",");
    add_number(out, tensor->layout);
    add(out, "]");
}

static void add_table(struct printer *out, const struct layout_table *table)
{
    add(out, "{\"format\":\"" LAYOUT_FORMAT "\",\"world\":");
    add_number(out, table->world);
    add(out, ",\n\"layouts\":[");
    for (uint32_t i = 0; i < table->classes_count; i++) {
        add(out, i ? ",\n" : "\n");
        if (table->classes[i].kind == LAYOUT_GRID)
            add_grid(out, &table->classes[i]);
        else
            add_parts(out, &table->classes[i]);
    }
    add(out, "],\n\"tensors\":[");
    for (uint32_t i = 0; i < table->tensors_count; i++) {
        add(out, i ? ",\n" : "\n");
        add_tensor(out, &table->tensors[i]);
    }
    add(out, "],\n\"aliases\":{");
    for (uint32_t i = 0; i < table->aliases_count; i++) {
        const struct layout_alias *alias = &table->aliases[i];
        const struct layout_tensor *tensor = &table->tensors[alias->tensor];
        add(out, i ? ",\n" : "\n");
        add_quoted(out, alias->name, alias->len);
        add(out, ":");
        add_quoted(out, tensor->name, tensor->name_len);
    }
    add(out, "}}\n");
}

void layout_table_print(const struct layout_table *table, struct text *out)
{
    struct printer printer;

    printer.text = out;
    printer.bytes = printer.len = 0;
    text_init(&printer.quoted, 0);
    add_table(&printer, table);
    flush(&printer);
    text_fini(&printer.quoted);
}

uint64_t layout_print_digest(const struct layout_table *table, char out[33])
{
    struct printer printer;
    XXH128_canonical_t canonical;

    printer.text = NULL;
    printer.bytes = printer.len = 0;
    text_init(&printer.quoted, 0);
    (void)XXH3_128bits_reset(&printer.digest);
    add_table(&printer, table);
    flush(&printer);
    text_fini(&printer.quoted);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&printer.digest));
    text_to_hex(canonical.digest, sizeof canonical.digest, out);
    return printer.bytes;
}
