/* exit_class.c - see exit_class.h. Rows: a phrase in the worker's own words -> a class. */
#include "agent/exit_class.h"
#include "base/mem.h"
#include <string.h>

#define CLASS(x) PB__REASON__CODE__##x
struct phrase {
    const char *text, *with; /* both must be there; with NULL: the first alone */
    Pb__Reason__Code class;
};
static const struct phrase phrases[] = {
    {"EADDRINUSE", NULL, CLASS(PORT_CLASH)},
    {"ddress already in use", NULL, CLASS(PORT_CLASH)},
    {"errno: 98", NULL, CLASS(PORT_CLASH)},
    {"CUDA out of memory", NULL, CLASS(OUT_OF_MEMORY)},
    {"OutOfMemoryError", NULL, CLASS(OUT_OF_MEMORY)},
    {"MemoryError", NULL, CLASS(OUT_OF_MEMORY)},
    {"std::bad_alloc", NULL, CLASS(OUT_OF_MEMORY)},
    {"uncorrectable ECC", NULL, CLASS(DEVICE_FAULT)},
    {"CUDA error: unspecified launch failure", NULL, CLASS(DEVICE_FAULT)},
    {"collective operation timeout", NULL, CLASS(COLLECTIVE_TIMEOUT)},
    {"Socket Timeout", NULL, CLASS(COLLECTIVE_TIMEOUT)},
    {"Timed out waiting", NULL, CLASS(COLLECTIVE_TIMEOUT)},
    {"Connection closed by peer", "gloo", CLASS(COLLECTIVE_TIMEOUT)},
    {"Connection reset by peer", "gloo", CLASS(COLLECTIVE_TIMEOUT)},
    {"Connection reset by peer", "TCPStore", CLASS(COLLECTIVE_TIMEOUT)},
};

/* What the system says where it is the node that has no room, not the program that is wrong. */
static const char *const no_room[] = {"No space left on device", "Disk quota exceeded",
                                      "Too many open files", "Resource temporarily unavailable",
                                      "Cannot allocate memory"};

static bool is_node_exhausted(const char *text)
{
    for (size_t i = 0; text && i < COUNT_OF(no_room); i++)
        if (strstr(text, no_room[i]))
            return true;
    return false;
}

static Pb__Reason__Code class_of_text(const char *text)
{
    for (size_t i = 0; text && i < COUNT_OF(phrases); i++)
        if (strstr(text, phrases[i].text) && (!phrases[i].with || strstr(text, phrases[i].with)))
            return phrases[i].class;
    return CLASS(CODE_UNSPECIFIED);
}

static Pb__Reason__Code class_of_words(const struct exit_facts *facts)
{
    const char *texts[] = {facts->failure, facts->traceback, facts->stderr_tail};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        Pb__Reason__Code found = class_of_text(texts[i]);
        if (found != CLASS(CODE_UNSPECIFIED))
            return found;
    }
    return CLASS(CODE_UNSPECIFIED);
}

Pb__Reason__Code exit_class_decide(const struct exit_facts *facts)
{
    switch (facts->cause) {
    case EXIT_CAUSE_LAUNCH:
        return is_node_exhausted(facts->launch_text) ? CLASS(NODE_EXHAUSTED) : CLASS(LAUNCH_FAILED);
    case EXIT_CAUSE_RESUME:
        return CLASS(CHECKPOINT_ERROR);
    case EXIT_CAUSE_SOURCE:
        return CLASS(SOURCE_LOST);
    case EXIT_CAUSE_SHIM:
        return CLASS(SHIM_LOST);
    case EXIT_CAUSE_REBOOT:
        return CLASS(NODE_LOST);
    case EXIT_CAUSE_HANG:
        return CLASS(HANG);
    default:
        break;
    }
    bool asked = facts->cause == EXIT_CAUSE_STOP || facts->cause == EXIT_CAUSE_KILL ||
                 facts->cause == EXIT_CAUSE_PEER;
    if (asked && facts->never_ran)
        return CLASS(ASKED);
    if (facts->code == 0 && facts->signal == 0)
        return CLASS(CODE_UNSPECIFIED);
    if (asked)
        return CLASS(ASKED);
    if (facts->out_of_memory)
        return CLASS(OUT_OF_MEMORY);
    if (facts->damaged)
        return CLASS(CHECKPOINT_ERROR);
    Pb__Reason__Code found = class_of_words(facts);
    if (found != CLASS(CODE_UNSPECIFIED))
        return found;
    return facts->signal ? CLASS(WORKER_SIGNALLED) : CLASS(USER_ERROR);
}
