#include "ctl/event_line.h"
#include "base/mem.h"
#include "ctl/output.h"
#include "ctl/term.h"
#include <string.h>

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static void add_clean(const char *text, size_t columns, struct text *out)
{
    char clean[1024];
    term_fit(text, columns, clean, sizeof clean);
    text_add(out, clean);
}

void event_line(const Pb__Event *event, const struct event_line_options *options, struct text *out)
{
    char at[32];
    const char *to = or_empty(event->to), *from = or_empty(event->from);
    const char *reason = or_empty(event->reason), *what = or_empty(event->text);
    output_time(event->at_us, at, sizeof at);
    text_addf(out, "%s ", strlen(at) == 19 ? at + 11 : at);
    if (options->with_job && event->job > 0)
        text_addf(out, "job %lld ", (long long)event->job);
    if (event->node && *event->node) {
        text_add(out, "node ");
        add_clean(event->node, 60, out);
        text_add(out, " ");
    }
    if (*to) {
        if (*from) {
            add_clean(from, 24, out);
            text_add(out, " -> ");
        }
        text_add(out, term_code(options->colour, term_state_paint(to)));
        add_clean(to, 24, out);
        text_add(out, term_code(options->colour, TERM_PLAIN));
    } else {
        add_clean(or_empty(event->kind), 40, out);
    }
    if (*reason || *what) {
        text_add(out, "  ");
        add_clean(reason, 40, out);
        text_add(out, *reason && *what ? ": " : "");
        add_clean(what, 300, out);
    }
    if (event->actor && *event->actor) {
        text_add(out, " (");
        add_clean(event->actor, 60, out);
        text_add(out, ")");
    }
    text_add(out, "\n");
}

bool event_line_is_news(const Pb__Event *event)
{
    static const char *const dull[] = {"STAGED", "SEALED", "EXPIRED", "DELETED"};
    for (size_t i = 0; event->to && i < COUNT_OF(dull); i++)
        if (strcmp(event->to, dull[i]) == 0)
            return false;
    return true;
}
