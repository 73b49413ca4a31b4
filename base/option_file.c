/* option_file.c - the YAML file: one mapping of option names to values, lists for lists.
 *
 * Reads libyaml's events one by one, so that each problem has its line and column and none hides
 * the next. Anchors, aliases and nested mappings have no use here and are refused. */
#include "base/file.h"
#include "base/mem.h"
#include "base/option_row.h"
#include <string.h>
#include <yaml.h>

#define OPTION_FILE_MAX      ((size_t)1 << 20)
#define OPTION_FILE_ROWS_MAX 256
#define OPTION_FILE_PROBLEMS 100

struct option_reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    const struct option *rows;
    void *config;
    const char *path;
    struct text *problems;
    size_t problem_count;
    bool broken;                     /* not YAML: nothing more can be read */
    bool seen[OPTION_FILE_ROWS_MAX]; /* by row */
};

static void reader_problem(struct option_reader *reader, yaml_mark_t mark, const char *what)
{
    if (reader->problem_count++ < OPTION_FILE_PROBLEMS)
        text_addf(reader->problems, "%s:%zu:%zu: %s\n", reader->path, mark.line + 1,
                  mark.column + 1, what);
}

/* Steps to the next event; false at the end or when the file is not YAML. */
static bool reader_next(struct option_reader *reader)
{
    yaml_event_delete(&reader->event);
    memset(&reader->event, 0, sizeof(reader->event));
    if (reader->broken)
        return false;
    if (!yaml_parser_parse(&reader->parser, &reader->event)) {
        reader->broken = true;
        reader_problem(reader, reader->parser.problem_mark,
                       reader->parser.problem ? reader->parser.problem : "not YAML");
        return false;
    }
    return reader->event.type != YAML_STREAM_END_EVENT;
}

/* Passes over the current node, however deep. */
static void reader_skip(struct option_reader *reader)
{
    size_t depth = 0;
    do {
        switch (reader->event.type) {
        case YAML_SEQUENCE_START_EVENT:
        case YAML_MAPPING_START_EVENT:
            depth++;
            break;
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT:
            depth--;
            break;
        default:
            break;
        }
    } while (depth > 0 && reader_next(reader));
}

static void reader_set(struct option_reader *reader, const struct option *row)
{
    const char *value = (const char *)reader->event.data.scalar.value;
    char expected[128], line[512];

    if (option_row_set(row, reader->config, value, reader->event.data.scalar.length))
        return;
    option_row_expected(row, expected, sizeof(expected));
    snprintf(line, sizeof(line), "%s: \"%.64s\" is not %s", row->name, value, expected);
    reader_problem(reader, reader->event.start_mark, line);
}

static void reader_list(struct option_reader *reader, const struct option *row)
{
    option_row_clear(row, reader->config);
    while (reader_next(reader) && reader->event.type != YAML_SEQUENCE_END_EVENT) {
        if (reader->event.type == YAML_SCALAR_EVENT) {
            reader_set(reader, row);
        } else {
            reader_problem(reader, reader->event.start_mark, "a list holds plain values only");
            reader_skip(reader);
        }
    }
}

/* The current event begins the value of row. */
static void reader_value(struct option_reader *reader, const struct option *row)
{
    char expected[128], line[256];

    if (reader->event.type == YAML_SCALAR_EVENT && row->type != OPT_LIST) {
        reader_set(reader, row);
    } else if (reader->event.type == YAML_SEQUENCE_START_EVENT && row->type == OPT_LIST) {
        reader_list(reader, row);
    } else {
        option_row_expected(row, expected, sizeof(expected));
        snprintf(line, sizeof(line), "%s: expected %s%s", row->name,
                 row->type == OPT_LIST ? "a list of " : "", expected);
        reader_problem(reader, reader->event.start_mark, line);
        reader_skip(reader);
    }
}

/* The current event is a key. Returns its row, or NULL after having said what is wrong. */
static const struct option *reader_key(struct option_reader *reader)
{
    const char *name = (const char *)reader->event.data.scalar.value;
    char line[512];

    if (reader->event.type != YAML_SCALAR_EVENT) {
        reader_problem(reader, reader->event.start_mark, "expected the name of an option");
        reader_skip(reader);
        return NULL;
    }
    const struct option *row = option_row_find(reader->rows, name);
    if (!row) {
        const char *nearest = option_row_nearest(reader->rows, name);
        snprintf(line, sizeof(line), "unknown option \"%.64s\"%s%s%s", name,
                 nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
        reader_problem(reader, reader->event.start_mark, line);
        return NULL;
    }
    size_t at = (size_t)(row - reader->rows);
    if (at < OPTION_FILE_ROWS_MAX && reader->seen[at]) {
        snprintf(line, sizeof(line), "%s is given twice", row->name);
        reader_problem(reader, reader->event.start_mark, line);
        return NULL;
    }
    if (at < OPTION_FILE_ROWS_MAX)
        reader->seen[at] = true;
    return row;
}

static void reader_mapping(struct option_reader *reader)
{
    while (reader_next(reader) && reader->event.type != YAML_MAPPING_END_EVENT) {
        const struct option *row = reader_key(reader);
        if (!reader_next(reader))
            return;
        if (row)
            reader_value(reader, row);
        else
            reader_skip(reader);
    }
}

static void reader_stream(struct option_reader *reader)
{
    bool done = false;

    while (reader_next(reader)) {
        switch (reader->event.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            continue;
        case YAML_MAPPING_START_EVENT:
            if (!done) {
                reader_mapping(reader);
                done = true;
                continue;
            }
            break;
        case YAML_SCALAR_EVENT: /* an empty document is one empty scalar */
            if (!done && reader->event.data.scalar.length == 0)
                continue;
            break;
        default:
            break;
        }
        reader_problem(reader, reader->event.start_mark, "expected one mapping of option: value");
        reader_skip(reader);
    }
}

enum status option_file(const struct option *rows, void *config, const char *path,
                        struct text *problems)
{
    struct option_reader reader = {
        .rows = rows, .config = config, .path = path, .problems = problems};
    struct error err;
    SCOPED_TEXT char *bytes = NULL;
    size_t len = 0;

    enum status st = file_read(path, OPTION_FILE_MAX, &bytes, &len, &err);
    if (st != STATUS_OK) {
        text_addf(problems, "%s\n", err.text);
        return st;
    }
    if (!yaml_parser_initialize(&reader.parser)) {
        text_addf(problems, "%s: cannot set up the YAML parser\n", path);
        return STATUS_EXHAUSTED;
    }
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)bytes, len);
    reader_stream(&reader);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    if (reader.problem_count > OPTION_FILE_PROBLEMS)
        text_addf(problems, "%s: and %zu more\n", path,
                  reader.problem_count - OPTION_FILE_PROBLEMS);
    return reader.problem_count ? STATUS_INVALID : STATUS_OK;
}
