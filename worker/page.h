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
 * rank is bound. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#define PAGE_BYTES 4096
#define PAGE_MAGIC UINT64_C(0x31454741504f4e52) /* "RNOPAGE1" */

enum page_phase { PAGE_NONE = 0, PAGE_PREPARE = 1, PAGE_ARM = 2, PAGE_DROP = 3 };

struct page_gate {           /* one for save, one for stop; written by the agent only */
    _Atomic uint64_t number; /* grows; 0: none yet. Written last when a proposal is published */
    _Atomic int64_t step;
    _Atomic uint32_t phase; /* enum page_phase */
    uint32_t reserved;
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
