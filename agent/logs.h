/* logs.h - output of workers, read by offset and followed.
 *
 * Loop thread; bytes are read off it. An ask is answered by exactly one chunk. Follow: the answer
 * waits until there is more, or the worker has ended. Keeps the logs of running workers under
 * log_mib_max by giving back the blocks of their beginning: offsets stay what they were. */
#pragma once
#include "agent/hub.h"

struct logs;
struct logs *logs_create(struct agent *agent);
void logs_destroy(struct logs *logs); /* NULL is fine */
void logs_ask(struct logs *logs, const Pb__LogAsk *ask);
void logs_down(struct logs *logs); /* the stream is gone, its asks with it */
