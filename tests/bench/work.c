/* work.c - see work.h. */
#include "tests/bench/work.h"
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

void work_init(struct work *work, const char *name, const char *const *argv)
{
    pb__submit_request__init(&work->request);
    pb__job_spec__init(&work->spec);
    pb__role__init(&work->role);
    pb__restart__init(&work->restart);
    size_t count = 0;
    for (; argv[count] && count < WORK_ARGS_MAX; count++)
        work->argv[count] = (char *)(uintptr_t)argv[count];
    static char role_name[] = "main";
    work->role.name = role_name;
    work->role.command = work->argv;
    work->role.n_command = count;
    work->roles[0] = &work->role;
    work->restart.has_budget = work->restart.has_backoff_ms = 1;
    work->restart.budget = 0;
    work->restart.backoff_ms = 0;
    work->spec.name = (char *)(uintptr_t)name;
    work->spec.roles = work->roles;
    work->spec.n_roles = 1;
    work->spec.restart = &work->restart;
    work->request.spec = &work->spec;
    work->request.request_id = work->id;
}

const ProtobufCMessage *work_next(struct work *work)
{
    static unsigned long number;

    snprintf(work->id, sizeof(work->id), "bench-%ld-%lld-%lu", (long)getpid(),
             (long long)time(NULL), ++number);
    return &work->request.base;
}
