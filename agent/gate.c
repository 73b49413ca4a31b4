/* gate.c - see gate.h. */
#include "agent/gate.h"

static void gate_propose(struct page_gate *place, const _Atomic int64_t *answered,
                         const Pb__Gate *gate, struct gate_answer *answer)
{
    bool bound = page_gate_prepare(place, answered, gate->number, gate->step);
    answer->number = gate->number;
    answer->phase = bound ? PB__GATE__PHASE__PREPARE : PB__GATE__PHASE__DROP;
    answer->step = bound ? gate->step : atomic_load(answered);
}

void gate_apply(struct page *page, const Pb__Gate *gate, struct gate_answer *answer)
{
    if (!page || !gate || gate->number == 0 || gate->kind == PB__GATE__KIND__KIND_UNSPECIFIED)
        return;
    bool save = gate->kind == PB__GATE__KIND__SAVE;
    struct page_gate *place = save ? &page->save : &page->stop;
    const _Atomic int64_t *answered = save ? &page->save_answered : &page->stop_answered;

    if (gate->number < atomic_load(&place->number))
        return; /* an older one, late */
    switch (gate->phase) {
    case PB__GATE__PHASE__PREPARE:
        gate_propose(place, answered, gate, answer);
        break;
    case PB__GATE__PHASE__ARM:
        page_gate_decide(place, answered, gate->number, gate->step, PAGE_ARM);
        *answer = (struct gate_answer){gate->number, gate->phase, gate->step};
        break;
    case PB__GATE__PHASE__DROP: /* where the rank is: the next question is placed by it */
        page_gate_decide(place, answered, gate->number, gate->step, PAGE_DROP);
        *answer = (struct gate_answer){gate->number, gate->phase, atomic_load(answered)};
        break;
    default:
        break;
    }
}
