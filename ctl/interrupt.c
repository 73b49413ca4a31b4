#include "ctl/interrupt.h"
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char line[400];
static size_t line_len; /* written before the handler is there */

static void last_word(int number)
{
    (void)!write(STDERR_FILENO, line, line_len);
    raise(number); /* its handler is gone: it ends the program once this returns */
}

void interrupt_say(const char *text)
{
    struct sigaction action, old;
    memset(&action, 0, sizeof action);
    if (sigaction(SIGINT, NULL, &old) != 0 || old.sa_handler == SIG_IGN)
        return;
    snprintf(line, sizeof line, "\nrondoctl: %.380s\n", text);
    line_len = strlen(line);
    action.sa_handler = last_word;
    action.sa_flags = (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}
