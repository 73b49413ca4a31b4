/* avoid.c - see avoid.h. */
#include "scheduler/avoid.h"
#include <string.h>

/* How many times it failed there, in different attempts. */
static unsigned times_failed(const struct avoid_failure *failures, size_t count, const char *node)
{
    unsigned times = 0;
    int64_t last = INT64_MIN;

    for (size_t i = 0; i < count; i++) {
        if (strcmp(failures[i].node, node) != 0 || (times && failures[i].at_us == last))
            continue;
        last = failures[i].at_us;
        times++;
    }
    return times;
}

static int64_t avoid_us(unsigned times)
{
    int64_t us = AVOID_US;

    for (unsigned i = 1; i < times && us < AVOID_US_MAX; i++)
        us *= 2;
    return us < AVOID_US_MAX ? us : AVOID_US_MAX;
}

size_t avoid_decide(const struct avoid_failure *failures, size_t count, int64_t now_us,
                    struct snapshot_avoid *out)
{
    size_t found = 0;

    for (size_t i = count; i-- > 0 && found < AVOID_MAX;) { /* the newest of each node decides */
        const struct avoid_failure *failure = &failures[i];
        bool seen = false;
        for (size_t later = i + 1; later < count && !seen; later++)
            seen = !strcmp(failures[later].node, failure->node);
        if (seen)
            continue;
        int64_t at_us = failure->at_us < now_us ? failure->at_us : now_us;
        int64_t until_us = at_us + avoid_us(times_failed(failures, i + 1, failure->node));
        if (until_us > now_us)
            out[found++] = (struct snapshot_avoid){failure->node, until_us, failure->why, at_us};
    }
    return found;
}
