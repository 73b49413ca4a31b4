/* interrupt.h - a last word when people end a wait with Ctrl-C.
 *
 * One at a time, of the whole program. The signal still ends it. */
#pragma once

/* Said on stderr, as a line of its own. Nothing is set up where the signal is ignored. */
void interrupt_say(const char *text);
