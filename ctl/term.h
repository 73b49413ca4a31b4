/* term.h - what the terminal can show: width, colour, Unicode; and how wide a text is on it.
 *
 * Any thread. Colour only on a terminal, without NO_COLOR, and with a TERM that is not dumb. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum term_paint {
    TERM_PLAIN,
    TERM_BOLD,
    TERM_DIM,
    TERM_RED,
    TERM_GREEN,
    TERM_YELLOW,
    TERM_BLUE,
    TERM_MAGENTA,
    TERM_CYAN
};

bool term_is_tty(int fd);
bool term_has_colour(int fd);
bool term_has_unicode(void); /* by LC_ALL, LC_CTYPE, LANG */
size_t term_columns(int fd); /* 100 when unknown; 40..400 */
/* The escape sequence that begins the paint (TERM_PLAIN ends it); "" without colour. */
const char *term_code(bool colour, enum term_paint paint);
/* Bytes of the character at text (1 for a stray byte) and its columns: 0, 1 or 2. */
size_t term_char(const char *text, size_t *columns);
size_t term_width(const char *text);
/* Copies text with control characters and stray bytes as '?', cut to columns with an ellipsis.
 * Writes at most cap bytes with the NUL. Returns the columns used. */
size_t term_fit(const char *text, size_t columns, char *out, size_t cap);
/* The paint for a job's, worker's, node's or checkpoint's state. */
enum term_paint term_state_paint(const char *state);
