#include "proto/text/text_yaml.h"
#include <string.h>

/* Line and column, in characters, of the byte at `at`. */
static yaml_mark_t mark_of(const char *text, size_t at)
{
    yaml_mark_t mark = {at, 0, 0};
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\n') {
            mark.line++;
            mark.column = 0;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
            mark.column++;
        }
    }
    return mark;
}

/* Where the first byte stands that is not UTF-8: whole lines first, then characters of one line. */
static size_t first_bad_byte(const char *text, size_t len)
{
    size_t line = 0;
    for (const char *end; (end = memchr(text + line, '\n', len - line)) != NULL;) {
        if (!text_is_utf8(text + line, (size_t)(end - text) - line))
            break;
        line = (size_t)(end - text) + 1;
    }
    size_t at = line;
    while (at < len && text[at] != '\n') {
        size_t n = 1;
        while (n <= 4 && at + n <= len && !text_is_utf8(text + at, n))
            n++;
        if (n > 4 || at + n > len)
            return at;
        at += n;
    }
    return at;
}

static bool check_text(const char *text, size_t len, struct problem_list *problems)
{
    if (len > TEXT_YAML_BYTES_MAX) {
        problem_list_add(problems, NULL, "%zu bytes are too many; at most %d are read", len,
                         TEXT_YAML_BYTES_MAX);
        return false;
    }
    if (text_is_utf8(text, len))
        return true;
    size_t at = first_bad_byte(text, len);
    yaml_mark_t mark = mark_of(text, at);
    problem_list_add(problems, &mark, "byte 0x%02x is not UTF-8 text",
                     at < len ? (unsigned char)text[at] : 0u);
    return false;
}

static void add_parser_problem(const yaml_parser_t *parser, struct problem_list *problems)
{
    const char *what = parser->problem ? parser->problem : "out of memory";
    if (parser->error == YAML_READER_ERROR) {
        problem_list_add(problems, &parser->mark, "not YAML: %s (0x%x)", what,
                         (unsigned)parser->problem_value);
        return;
    }
    problem_list_add(problems, &parser->problem_mark, "not YAML: %s%s%s", what,
                     parser->context ? ", " : "", parser->context ? parser->context : "");
}

/* Follows one event. False: stop, because of a problem or at the end (*done). */
static bool scan_event(const yaml_event_t *event, unsigned *depth, unsigned *docs, bool *done,
                       struct problem_list *problems)
{
    switch (event->type) {
    case YAML_STREAM_END_EVENT:
        *done = true;
        return false;
    case YAML_DOCUMENT_START_EVENT:
        if (++*docs > 1) {
            problem_list_add(problems, &event->start_mark,
                             "a second document; one file holds one (remove '---')");
            return false;
        }
        return true;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        if (++*depth > TEXT_YAML_DEPTH_MAX) {
            problem_list_add(problems, &event->start_mark, "nested deeper than %d levels",
                             TEXT_YAML_DEPTH_MAX);
            return false;
        }
        return true;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        --*depth;
        return true;
    default:
        return true;
    }
}

/* Syntax, depth, number of documents: the whole text as events, which cost no memory. */
static bool scan(const char *text, size_t len, struct problem_list *problems)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        problem_list_add(problems, NULL, "out of memory");
        return false;
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    bool done = false, going = true;
    unsigned depth = 0, docs = 0;
    while (going) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            add_parser_problem(&parser, problems);
            break;
        }
        going = scan_event(&event, &depth, &docs, &done, problems);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return done;
}

bool text_yaml_compose(const char *text, size_t len, yaml_document_t *doc,
                       struct problem_list *problems)
{
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* byte order mark */
        text += 3;
        len -= 3;
    }
    if (!check_text(text, len, problems) || !scan(text, len, problems))
        return false;
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        problem_list_add(problems, NULL, "out of memory");
        return false;
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    bool loaded = yaml_parser_load(&parser, doc) != 0;
    if (!loaded) /* an alias without its anchor, a repeated anchor */
        add_parser_problem(&parser, problems);
    yaml_parser_delete(&parser);
    return loaded;
}
