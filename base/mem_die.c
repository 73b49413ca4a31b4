/* mem_die.c - see mem_die.h. */
#include "base/mem_die.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void mem_die(const char *why, size_t size)
{
    char line[128];
    int len = snprintf(line, sizeof(line), "fatal: %s (%zu bytes)\n", why, size);
    if (len > 0 && write(STDERR_FILENO, line, (size_t)len) < 0)
        abort();
    abort();
}
