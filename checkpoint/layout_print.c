/* layout_print.c - the canonical bytes of a table. */
#include "checkpoint/layout_table.h"

static void add_number(struct text *out, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    text_add_bytes(out, digits + at, sizeof digits - at);
}

static void add_numbers(struct text *out, const uint64_t *numbers, size_t count)
{
    text_add_bytes(out, "[", 1);
    for (size_t i = 0; i < count; i++) {
        if (i)
            text_add_bytes(out, ",", 1);
        add_number(out, numbers[i]);
    }
    text_add_bytes(out, "]", 1);
}

static void add_quoted(struct text *out, const char *text, size_t len)
{
    text_add(out, "\"");
    for (size_t i = 0, from = 0; i <= len; i++) {
        bool plain = i < len && (unsigned char)text[i] >= 0x20 && text[i] != '"' && text[i] != '\\';
        if (plain)
            continue;
        text_add_bytes(out, text + from, i - from);
        if (i < len)
            text_addf(out, "\\u%04x", (unsigned)(unsigned char)text[i]);
        from = i + 1;
    }
    text_add(out, "\"");
}

static void add_grid(struct text *out, const struct layout_class *class)
{
    text_add(out, "{\"kind\":\"grid\",\"cuts\":[");
    for (uint32_t d = 0; d < class->dims; d++) {
        if (d)
            text_add(out, ",");
        add_numbers(out, class->cuts + class->cuts_at[d], layout_class_intervals(class, d) + 1);
    }
    text_add(out, "],\"ranks\":[");
    for (uint32_t item = 0; item < class->items; item++) {
        text_add(out, item ? ",[" : "[");
        for (uint32_t i = class->holders_at[item]; i < class->holders_at[item + 1]; i++) {
            if (i > class->holders_at[item])
                text_add_bytes(out, ",", 1);
            add_number(out, class->holders[i].rank);
        }
        text_add_bytes(out, "]", 1);
    }
    text_add(out, "]}");
}

/* By rank, then piece. */
static void add_parts(struct text *out, const struct layout_class *class)
{
    bool flat = class->kind == LAYOUT_FLAT;
    struct layout_box box;

    text_add(out, flat ? "{\"kind\":\"flat\",\"ranges\":[" : "{\"kind\":\"boxes\",\"boxes\":[");
    for (uint32_t i = 0; i < class->seats_count; i++) {
        struct layout_seat seat = class->seats[i];
        text_add(out, i ? ",[" : "[");
        add_number(out, seat.rank);
        text_add(out, ",");
        if (flat) {
            add_number(out, class->corners[2 * (size_t)seat.item]);
            text_add(out, ",");
            add_number(out, class->corners[2 * (size_t)seat.item + 1]);
        } else {
            (void)layout_class_box(class, seat.item, &box);
            add_numbers(out, box.offset, class->dims);
            text_add(out, ",");
            add_numbers(out, box.size, class->dims);
        }
        text_add(out, "]");
    }
    text_add(out, "]}");
}

static void add_tensor(struct text *out, const struct layout_tensor *tensor)
{
    text_add(out, "[");
    add_quoted(out, tensor->name, tensor->name_len);
    text_add(out, ",\"");
    text_add(out, dtype_name(tensor->dtype));
    text_add(out, "\",");
    add_numbers(out, tensor->shape, tensor->dims);
    text_add(out, ",");
    add_number(out, tensor->layout);
    text_add(out, "]");
}

void layout_table_print(const struct layout_table *table, struct text *out)
{
    text_add(out, "{\"format\":\"" LAYOUT_FORMAT "\",\"world\":");
    add_number(out, table->world);
    text_add(out, ",\n\"layouts\":[");
    for (uint32_t i = 0; i < table->classes_count; i++) {
        text_add(out, i ? ",\n" : "\n");
        if (table->classes[i].kind == LAYOUT_GRID)
            add_grid(out, &table->classes[i]);
        else
            add_parts(out, &table->classes[i]);
    }
    text_add(out, "],\n\"tensors\":[");
    for (uint32_t i = 0; i < table->tensors_count; i++) {
        text_add(out, i ? ",\n" : "\n");
        add_tensor(out, &table->tensors[i]);
    }
    text_add(out, "],\n\"aliases\":{");
    for (uint32_t i = 0; i < table->aliases_count; i++) {
        const struct layout_alias *alias = &table->aliases[i];
        const struct layout_tensor *tensor = &table->tensors[alias->tensor];
        text_add(out, i ? ",\n" : "\n");
        add_quoted(out, alias->name, alias->len);
        text_add(out, ":");
        add_quoted(out, tensor->name, tensor->name_len);
    }
    text_add(out, "}}\n");
}
