/* ended.h - logs of workers that have left: kept until they are too old or too many.
 *
 * Loop thread. <state>/ended/<tag>/ holds out and err. Looked through once a minute. */
#pragma once
#include "agent/hub.h"

struct ended;
struct ended *ended_create(struct agent *agent);
void ended_destroy(struct ended *ended); /* NULL is fine */
void ended_adopt(struct ended *ended, char *const *names, size_t count);
void ended_add(struct ended *ended, const char *tag);
/* The tag of that worker (incarnation 0: the latest); false: not kept. */
bool ended_find(const struct ended *ended, const Pb__WorkerKey *key, char tag[256]);
