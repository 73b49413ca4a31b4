/* claim.c - see claim.h. */
#include "agent/claim.h"
#include <string.h>

struct claim { /* devices of one kind */
    const char *kind;
    const uint32_t *indices;
    size_t count;
};

static void claims_of(const struct worker *worker, struct claim out[2])
{
    const Pb__Launch *launch = worker->desired->launch;
    const char *kind = launch && launch->resources ? launch->resources->device : NULL;

    out[0] = out[1] = (struct claim){.kind = "cpu"};
    if (!launch)
        return;
    out[0] = (struct claim){kind ? kind : "cpu", launch->devices, launch->n_devices};
    out[1] = (struct claim){"cpu", launch->cpus, launch->n_cpus};
}

static bool overlap(const struct claim *one, const struct claim *other)
{
    if (strcmp(one->kind, other->kind) != 0)
        return false;
    for (size_t i = 0; i < one->count; i++)
        for (size_t j = 0; j < other->count; j++)
            if (one->indices[i] == other->indices[j])
                return true;
    return false;
}

static bool holds(const struct worker *worker)
{
    return !worker_is_final(worker) &&
           (worker->state != PB__ACTUAL_WORKER__STATE__PENDING || worker->proc);
}

const struct worker *claim_holder(const struct worker *worker)
{
    struct claim mine[2], its[2];
    size_t at = 0;
    const struct worker *other;

    claims_of(worker, mine);
    while ((other = map_next(worker->agent->workers, &at))) {
        if (other == worker || !holds(other))
            continue;
        claims_of(other, its);
        for (size_t i = 0; i < 2; i++)
            if (overlap(&mine[i], &its[0]) || overlap(&mine[i], &its[1]))
                return other;
    }
    return NULL;
}
