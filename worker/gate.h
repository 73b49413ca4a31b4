/* gate.h - the worker's side of a gate (page.h): yes or no at a step, the same on every rank.
 *
 * One thread at a time per gate (rondo.c holds a lock). Never blocks: GATE_WAIT means that the step
 * is being agreed on; the caller sleeps and asks for the same step again. */
#pragma once
#include "worker/page.h"

enum gate_answer { GATE_NO = 0, GATE_YES = 1, GATE_WAIT = 2 };

struct gate {
    struct page_gate *shared;
    _Atomic int64_t *answered;
    int64_t settled;       /* highest step with an answer; -1: none */
    enum gate_answer last; /* that answer */
};

void gate_init(struct gate *gate, struct page_gate *shared, _Atomic int64_t *answered);
enum gate_answer gate_ask(struct gate *gate, int64_t step);
