/* gate.c - see gate.h, and page.h for why it is right. */
#include "worker/gate.h"

#define READS_MAX 64 /* the page keeps changing under us: let the caller sleep */

void gate_init(struct gate *gate, struct page_gate *shared, _Atomic int64_t *answered)
{
    *gate = (struct gate){
        .shared = shared, .answered = answered, .settled = atomic_load(answered), .last = GATE_NO};
}

static enum gate_answer settle(struct gate *gate, int64_t step, enum gate_answer answer)
{
    gate->settled = step;
    gate->last = answer;
    return answer;
}

/* What the page says about the steps after the settled one, up to this one. The step is read before
 * the phase: the agent writes them so that an old decision never meets a new step. */
static enum gate_answer look(const struct gate *gate, int64_t step)
{
    struct page_gate *shared = gate->shared;

    for (int i = 0; i < READS_MAX; i++) {
        uint64_t number;
        int64_t at;
        uint32_t phase;

        PAGE_POINT();
        number = atomic_load(&shared->number);
        if (number == 0)
            return GATE_NO; /* a proposal on its way will find our answer and be refused */
        PAGE_POINT();
        at = atomic_load(&shared->step);
        PAGE_POINT();
        phase = atomic_load(&shared->phase);
        PAGE_POINT();
        if (atomic_load(&shared->number) != number)
            continue;
        if (at > step || at <= gate->settled)
            return GATE_NO;
        if (phase == PAGE_ARM)
            return GATE_YES;
        if (phase == PAGE_DROP)
            return GATE_NO;
        return GATE_WAIT;
    }
    return GATE_WAIT;
}

enum gate_answer gate_ask(struct gate *gate, int64_t step)
{
    enum gate_answer answer;

    if (step <= gate->settled)
        return step == gate->settled ? gate->last : GATE_NO;
    PAGE_POINT();
    atomic_store(gate->answered, step); /* before the look: the agent does it the other way round */
    answer = look(gate, step);
    return answer == GATE_WAIT ? answer : settle(gate, step, answer);
}
