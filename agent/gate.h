/* gate.h - the daemon's gates ("save at step S", "stop at step S") on a worker's shared page.
 *
 * Loop thread. Decides nothing: it writes what the daemon says, in the order that worker/page.h
 * prescribes, and reads back what the rank has answered. */
#pragma once
#include "proto/pb.h"
#include "worker/page.h"

struct gate_answer { /* what this rank said to the last gate */
    uint64_t number;
    Pb__Gate__Phase phase; /* PREPARE: bound. DROP: refused, or dropped. ARM: armed */
    int64_t step;          /* of the gate; refused: highest step already answered */
};
/* Idempotent. A gate without number, kind or phase changes nothing. */
void gate_apply(struct page *page, const Pb__Gate *gate, struct gate_answer *answer);
