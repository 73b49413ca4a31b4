/* shim_clone.c - clone3 with CLONE_VM | CLONE_VFORK, which the C library does not offer. */
#include "agent/shim/shim_clone.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The child must not return into the parent's frames: it calls fn on its new stack, in assembler.
 * Registers but the result and the stack pointer are the parent's. */
static long shim_clone_call(struct clone_args *args, void (*fn)(void *arg), void *arg)
{
#if defined(__x86_64__)
    long result = SYS_clone3;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %[arg], %%rdi\n\t"
                     "call *%[fn]\n\t"
                     "hlt\n"
                     "1:"
                     : "+a"(result)
                     : "D"(args), "S"(sizeof(*args)), [fn] "r"(fn), [arg] "r"(arg)
                     : "rcx", "rdx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_clone3;
    register uint64_t x0 __asm__("x0") = (uint64_t)(uintptr_t)args;
    register uint64_t x1 __asm__("x1") = sizeof(*args);
    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, #0\n\t"
                     "mov x0, %[arg]\n\t"
                     "blr %[fn]\n\t"
                     "brk #1\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), [fn] "r"(fn), [arg] "r"(arg)
                     : "x30", "memory");
    return (long)x0;
#else
#error "write the eight instructions of clone3 for this machine"
#endif
}

_Alignas(4096) static char stack[64 << 10]; /* pages that are not touched cost nothing */

void shim_clone_warm(void)
{
    enum { BUSY = 4 * 4096 };
    for (volatile char *at = stack + sizeof(stack) - BUSY; at < stack + sizeof(stack); at += 4096)
        *at = 0;
}

pid_t shim_clone(const char *cgroup2, void (*fn)(void *arg), void *arg)
{
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK,
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t)stack,
        .stack_size = sizeof(stack),
    };
    int dir = cgroup2[0] ? open(cgroup2, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    long pid = -EINVAL;
    if (dir >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (unsigned)dir;
        pid = shim_clone_call(&args, fn, arg);
        close(dir);
    }
    /* The v2 group only makes killing easier: without it the shim's own walk does the work. */
    if (pid < 0) {
        args.flags = CLONE_VM | CLONE_VFORK;
        args.cgroup = 0;
        pid = shim_clone_call(&args, fn, arg);
    }
    return (pid_t)pid;
}
