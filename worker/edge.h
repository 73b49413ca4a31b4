/* edge.h - the edge of librondo's API: where calls that allocate are entered, and left when there
 * is no memory.
 *
 * Any thread; not nested. Checkpoint code allocates by base/mem, which never returns NULL. Within
 * edge_run its failure comes back here (mem_die is defined in edge.c): the call ends with
 * -RONDO_EXHAUSTED, and what it had built so far is lost. Only the thread that entered may
 * allocate. */
#pragma once

/* call(arg), or -RONDO_EXHAUSTED with rondo_error's text set. */
int edge_run(int (*call)(void *arg), void *arg);
