/* page.h - the page that a worker and its agent share: gates ("save at step S", "stop at step S")
 * with the same answer on every rank.
 *
 * A file `page` of PAGE_BYTES in the worker's directory, mapped by both. The agent makes it before
 * the worker starts; a later agent maps it again. Wire format: fields never move, later versions
 * only add. All accesses are C11 atomics, sequentially consistent.
 *
 * Why it is right: the agent publishes a proposal (PREPARE at step S) and then reads `answered`;
 * the worker publishes `answered = s` and then reads the proposal. One of them sees the other. If
 * answered >= S when the agent looks, the rank refuses (the step is gone); else the rank is bound:
 * when it reaches S it waits until the agent writes ARM or DROP. The daemon arms only when every
 * rank is bound.
 *
 * A program need not ask for every step: a gate opens at the first step asked for that is >= S.
 *
 * Rules the proof rests on (tests/unit/worker/test_gate.c breaks when one is left out):
 * 1. A number has one outcome: ARM when every rank is bound, DROP when any refused, nothing else
 *    decides. What a rank said is kept in the page (`said`), so that neither a new agent nor a new
 *    daemon, asking again, hears anything else, also when the rank has reached the step meanwhile.
 * 2. An armed number is replaced only when every rank has acted on it (its part of the save is
 *    there); one in PREPARE only after it was dropped. So a rank that finds a newer number knows:
 *    the older was dropped.
 * 3. The agent writes in the order of page_gate_prepare.
 * The file is written in full when it is made: a hole could not be filled on a full disk. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PAGE_BYTES 4096
#define PAGE_MAGIC UINT64_C(0x31454741504f4e52) /* "RNOPAGE1" */

enum page_phase { PAGE_NONE = 0, PAGE_PREPARE = 1, PAGE_ARM = 2, PAGE_DROP = 3 };

enum page_said { PAGE_SAID_NOTHING = 0, PAGE_SAID_BOUND = 1, PAGE_SAID_REFUSED = 2 };

struct page_gate {           /* one for save, one for stop; written by the agent only */
    _Atomic uint64_t number; /* grows; 0: none yet. Written last when a proposal is published */
    _Atomic int64_t step;
    _Atomic uint32_t phase; /* enum page_phase */
    _Atomic uint32_t said;  /* enum page_said: what was said to this number */
};
struct page {
    uint64_t magic;
    uint32_t version; /* 1 */
    uint32_t agent_pid;
    struct page_gate save, stop;
    /* written by the worker only */
    _Atomic int64_t save_answered; /* highest step that should_save was asked for; -1: none */
    _Atomic int64_t stop_answered;
    _Atomic uint64_t reports; /* records appended so far: the agent's doorbell */
    _Atomic uint32_t joined, finished, saving;
    uint32_t reserved2;
};
_Static_assert(sizeof(struct page) <= PAGE_BYTES, "the page holds it");

#ifndef PAGE_POINT /* the test of the protocol switches between its actors at each access */
#define PAGE_POINT() ((void)0)
#endif

/* Agent: publishes "at that step?" under this number. True: the rank is bound. False: it has gone
 * past the step: report a refusal with *answered. Asked again, it says the same again. */
static inline bool page_gate_prepare(struct page_gate *gate, const _Atomic int64_t *answered,
                                     uint64_t number, int64_t step)
{
    uint32_t said;

    PAGE_POINT();
    if (atomic_load(&gate->number) != number) {
        PAGE_POINT();
        atomic_store(&gate->phase, PAGE_NONE); /* an old decision must not meet the new step */
        PAGE_POINT();
        atomic_store(&gate->said, PAGE_SAID_NOTHING);
        PAGE_POINT();
        atomic_store(&gate->step, step);
        PAGE_POINT();
        atomic_store(&gate->phase, PAGE_PREPARE);
        PAGE_POINT();
        atomic_store(&gate->number, number);
    }
    PAGE_POINT();
    said = atomic_load(&gate->said);
    if (said == PAGE_SAID_NOTHING) {
        PAGE_POINT();
        said = atomic_load(answered) < step ? PAGE_SAID_BOUND : PAGE_SAID_REFUSED;
        PAGE_POINT();
        atomic_store(&gate->said, said); /* before anybody is told */
    }
    return said == PAGE_SAID_BOUND;
}

/* Agent: the daemon's word (PAGE_ARM or PAGE_DROP) on this number, whether or not the proposal ever
 * arrived here. */
static inline void page_gate_decide(struct page_gate *gate, const _Atomic int64_t *answered,
                                    uint64_t number, int64_t step, enum page_phase phase)
{
    (void)page_gate_prepare(gate, answered, number, step);
    PAGE_POINT();
    atomic_store(&gate->phase, (uint32_t)phase);
}
