/* edge.c - see edge.h. */
#include "worker/edge.h"

#include <setjmp.h>
#include <stdlib.h>

#include "base/mem_die.h"
#include "worker/member.h"

static _Thread_local jmp_buf *here;

int edge_run(int (*call)(void *arg), void *arg)
{
    jmp_buf back;
    int result;

    if (setjmp(back) != 0) {
        here = NULL;
        return member_fail(RONDO_EXHAUSTED, "out of memory");
    }
    here = &back;
    result = call(arg);
    here = NULL;
    return result;
}

void mem_die(const char *why, size_t size)
{
    (void)why;
    (void)size;
    if (here)
        longjmp(*here, 1);
    abort(); /* nothing allocates outside an edge */
}
