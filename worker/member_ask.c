/* member_ask.c - the member asks its agent: one thread at a time, with a deadline. */
#include <time.h>

#include "worker/member.h"

#define SAVE_MS 600000

int member_ask(const struct ask_request *request, uint32_t ms, struct ask_answer *answer)
{
    int64_t deadline_us = ask_now_us() + (int64_t)(ms ? ms : SAVE_MS) * 1000;
    struct timespec until = {deadline_us / 1000000, deadline_us % 1000000 * 1000};
    int result;

    if (pthread_mutex_clocklock(&member.ask_lock, CLOCK_MONOTONIC, &until) != 0)
        return member_fail(RONDO_DEADLINE, "another thread's save is in progress");
    result = ask_call(&member.ask, request, deadline_us, answer);
    (void)pthread_mutex_unlock(&member.ask_lock);
    if (result != 0)
        return member_fail(RONDO_DEADLINE, "the agent has not answered in time");
    if (answer->status != 0)
        return member_fail((enum rondo_status)answer->status, "%s", answer->error);
    return 0;
}

void member_show_saving(void)
{
    atomic_store(&member.page->saving,
                 atomic_load(&member.in_save) || atomic_load(&member.said_saving));
}

void member_set_in_save(int on)
{
    atomic_store(&member.in_save, on);
    member_show_saving();
}
