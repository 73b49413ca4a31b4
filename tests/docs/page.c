/* page.c - see page.h. */
#include "tests/docs/page.h"
#include "base/mem.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

void page_cell(const char *words, struct text *out)
{
    for (; *words; words++) {
        if (*words == '|')
            text_add(out, "\\");
        text_add_bytes(out, words, 1);
    }
}

/* Where the block of that head ("enum Code") begins and ends; false when it is not there. */
static bool find_block(const char *source, const char *head, const char **begin, const char **end)
{
    SCOPED_TEXT char *line = mem_printf("%s {", head);
    const char *at = strstr(source, line);
    int depth = 1;
    if (!at)
        return false;
    *begin = at += strlen(line);
    for (; *at && depth > 0; at++)
        depth += (*at == '{') - (*at == '}');
    *end = at;
    return true;
}

/* The comment of the line that holds "name = N". */
void page_comment(const char *source, const char *head, const char *name, struct text *out)
{
    const char *at, *end;
    SCOPED_TEXT char *mark = mem_printf(" %s = ", name);
    if (!find_block(source, head, &at, &end))
        return;
    while ((at = strstr(at, mark)) && at < end) {
        size_t len = strcspn(at, "\n");
        const char *comment = strstr(at, "// ");
        at += strlen(mark);
        if (!isdigit((unsigned char)*at) || !comment || comment >= at + len)
            continue;
        len = strcspn(comment + 3, "\n");
        SCOPED_TEXT char *words = mem_printf("%.*s", (int)len, comment + 3);
        page_cell(words, out);
        return;
    }
}

static void add_values(const ProtobufCEnumDescriptor *type, struct text *out)
{
    bool any = false;
    for (unsigned i = 0; i < type->n_values; i++) {
        if (type->values[i].value == 0)
            continue; /* UNSPECIFIED is never written */
        text_addf(out, "%s`%s`", any ? " or " : "", type->values[i].name);
        any = true;
    }
}

static const char *scalar_name(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_BOOL:
        return "true or false";
    case PROTOBUF_C_TYPE_STRING:
        return "text";
    case PROTOBUF_C_TYPE_BYTES:
        return "bytes";
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FLOAT:
        return "number";
    default:
        return "integer";
    }
}

void page_type(const ProtobufCFieldDescriptor *field, struct text *out)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        text_add(out, "list of ");
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        text_add(out, ((const ProtobufCMessageDescriptor *)field->descriptor)->short_name);
    else if (field->type == PROTOBUF_C_TYPE_ENUM)
        add_values(field->descriptor, out);
    else
        text_add(out, scalar_name(field->type));
}
