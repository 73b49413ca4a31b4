/* page_guard.c - see page_guard.h. */
#include "agent/page_guard.h"
#include "worker/page.h"
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define PAGES_MAX 16384

static _Atomic uintptr_t pages[PAGES_MAX];

static void replace(uintptr_t from, uintptr_t to)
{
    for (size_t i = 0; i < PAGES_MAX; i++) {
        uintptr_t expected = from;
        if (atomic_compare_exchange_strong(&pages[i], &expected, to))
            return;
    }
}

void page_guard_add(void *page)
{
    replace(0, (uintptr_t)page);
}

void page_guard_remove(void *page)
{
    replace((uintptr_t)page, 0);
}

/* Only loads of atomics and one system call: safe in a handler. */
static void on_bus_error(int signo, siginfo_t *info, void *context)
{
    uintptr_t page = (uintptr_t)info->si_addr & ~(uintptr_t)(PAGE_BYTES - 1);
    (void)context;
    for (size_t i = 0; page && i < PAGES_MAX; i++) {
        if (atomic_load(&pages[i]) != page)
            continue;
        if (mmap((void *)page, PAGE_BYTES, PROT_READ | PROT_WRITE,
                 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
            return;
    }
    (void)signal(signo, SIG_DFL); /* not one of ours: the fault comes again and ends us */
}

void page_guard_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, NULL);
}
