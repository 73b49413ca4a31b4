#include "ctl/term.h"
#include "base/mem.h"
#include "base/text.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool term_is_tty(int fd)
{
    return isatty(fd) == 1;
}

bool term_has_colour(int fd)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return term_is_tty(fd) && (!none || !*none) && term && *term && strcmp(term, "dumb") != 0;
}

bool term_has_unicode(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "UTF-8") || strcasestr(value, "UTF8");
    }
    return false;
}

size_t term_columns(int fd)
{
    struct winsize size;
    int64_t columns = 100;
    const char *given = getenv("COLUMNS");
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    else if (given)
        text_to_i64(given, 1, 10000, &columns);
    return (size_t)(columns < 40 ? 40 : columns > 400 ? 400 : columns);
}

const char *term_code(bool colour, enum term_paint paint)
{
    static const char *const codes[] = {
        [TERM_PLAIN] = "\x1b[0m", [TERM_BOLD] = "\x1b[1m",     [TERM_DIM] = "\x1b[2m",
        [TERM_RED] = "\x1b[31m",  [TERM_GREEN] = "\x1b[32m",   [TERM_YELLOW] = "\x1b[33m",
        [TERM_BLUE] = "\x1b[34m", [TERM_MAGENTA] = "\x1b[35m", [TERM_CYAN] = "\x1b[36m"};
    return colour ? codes[paint] : "";
}

static bool is_wide(uint32_t code)
{
    static const uint32_t ranges[][2] = {
        {0x1100, 0x115f},   {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
        {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},
        {0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
    for (size_t i = 0; i < COUNT_OF(ranges); i++)
        if (code >= ranges[i][0] && code <= ranges[i][1])
            return true;
    return false;
}

static bool is_joined(uint32_t code) /* takes no room of its own */
{
    return (code >= 0x300 && code <= 0x36f) || (code >= 0x200b && code <= 0x200f) ||
           (code >= 0xfe00 && code <= 0xfe0f);
}

size_t term_char(const char *text, size_t *columns)
{
    unsigned char lead = (unsigned char)*text;
    size_t n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    *columns = 1;
    if (n == 1 || strnlen(text, n) < n || !text_is_utf8(text, n))
        return 1;
    uint32_t code = lead & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3fu);
    *columns = is_joined(code) ? 0 : is_wide(code) ? 2 : 1;
    return n;
}

size_t term_width(const char *text)
{
    size_t width = 0, columns;
    while (*text) {
        text += term_char(text, &columns);
        width += columns;
    }
    return width;
}

/* Would the terminal do something else than show it? */
static bool is_dangerous(const char *text, size_t n)
{
    unsigned char c = (unsigned char)text[0], d = n > 1 ? (unsigned char)text[1] : 0;
    if (n == 1)
        return c < 0x20 || c >= 0x7f;
    if (n == 2)
        return c == 0xc2 && d < 0xa0;
    return n == 3 && c == 0xe2 && d == 0x80 && (unsigned char)text[2] >= 0xa8 &&
           (unsigned char)text[2] <= 0xae;
}

size_t term_fit(const char *text, size_t columns, char *out, size_t cap)
{
    static const char ellipsis[] = "\xe2\x80\xa6";
    size_t used = 0, at = 0, width = term_width(text), limit = columns;
    bool cut = width > columns;
    const char *tail = term_has_unicode() ? ellipsis : "~";
    if (cut && limit > 0)
        limit--;
    while (*text) {
        size_t wide, n = term_char(text, &wide);
        if (used + wide > limit || at + n + sizeof ellipsis > cap)
            break;
        if (is_dangerous(text, n)) {
            out[at++] = '?';
            wide = 1;
        } else {
            memcpy(out + at, text, n);
            at += n;
        }
        used += wide;
        text += n;
    }
    out[at] = '\0';
    if (!cut || columns == 0)
        return used;
    memcpy(out + at, tail, strlen(tail) + 1);
    return used + 1;
}

enum term_paint term_state_paint(const char *state)
{
    static const struct {
        const char *state;
        enum term_paint paint;
    } paints[] = {{"RUNNING", TERM_GREEN},   {"SUCCEEDED", TERM_GREEN}, {"HEALTHY", TERM_GREEN},
                  {"COMMITTED", TERM_GREEN}, {"VERIFIED", TERM_GREEN},  {"FAILED", TERM_RED},
                  {"LOST", TERM_RED},        {"TORN", TERM_RED},        {"DAMAGED", TERM_RED},
                  {"UNKILLABLE", TERM_RED},  {"QUARANTINED", TERM_RED}, {"CANCELLED", TERM_DIM},
                  {"QUEUED", TERM_YELLOW},   {"HELD", TERM_YELLOW},     {"STARTING", TERM_CYAN},
                  {"SAVING", TERM_CYAN},     {"STOPPING", TERM_YELLOW}, {"SUSPECT", TERM_YELLOW},
                  {"CORDONED", TERM_YELLOW}, {"DRAINING", TERM_YELLOW}, {"EXPIRED", TERM_DIM}};
    for (size_t i = 0; i < COUNT_OF(paints); i++)
        if (strcmp(paints[i].state, state) == 0)
            return paints[i].paint;
    return TERM_PLAIN;
}
