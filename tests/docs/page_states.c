/* page_states.c - docs/states.md: the rows of the state machines, and the reasons. */
#include "agent/worker_fsm.h"
#include "base/mem.h"
#include "daemon/job_fsm.h"
#include "proto/text/enum.h"
#include "tests/docs/page.h"

static const char *worker_state(Pb__ActualWorker__State state)
{
    return enum_name(&pb__actual_worker__state__descriptor, (int)state);
}

static void print_worker(struct text *out)
{
    size_t count;
    const struct worker_rule *rows = worker_fsm_rows(&count);
    text_add(out, "| from | event | to | what the operator is told |\n|---|---|---|---|\n");
    for (size_t i = 0; i < count; i++)
        text_addf(out, "| %s | %s | %s | %s |\n", worker_state(rows[i].from),
                  worker_fsm_event_name(rows[i].event), worker_state(rows[i].to), rows[i].text);
    text_add(out, "\n```mermaid\nstateDiagram-v2\n    [*] --> PENDING\n");
    for (size_t i = 0; i < count; i++)
        text_addf(out, "    %s --> %s: %s\n", worker_state(rows[i].from), worker_state(rows[i].to),
                  worker_fsm_event_name(rows[i].event));
    text_add(out, "```\n");
}

static void print_values(const ProtobufCEnumDescriptor *type, const char *head, const char *source,
                         struct text *out)
{
    text_add(out, "| name | meaning |\n|---|---|\n");
    for (unsigned i = 0; i < type->n_values; i++) {
        if (type->values[i].value == 0)
            continue;
        text_addf(out, "| %s | ", type->values[i].name);
        page_comment(source, head, type->values[i].name, out);
        text_add(out, " |\n");
    }
}

void page_states(const struct page_sources *sources, struct text *out)
{
    text_add(out, "# States\n\nPrinted from the rows of `daemon/job_fsm.c` and "
                  "`agent/worker_fsm.c` by `scripts/docs.sh`. What has no row is\nrefused and "
                  "changes nothing.\n\n## Job\n\nLives in the daemon; stored in PostgreSQL before "
                  "anybody sees it.\n\n");
    job_fsm_print(out);
    text_add(out, "\n## Reasons of a job's state\n\n");
    print_values(&pb__reason__code__descriptor, "enum Code", sources->job, out);
    text_add(out, "\n## Worker\n\nLives in the agent, mirrored by the daemon. EXITED and LOST are "
                  "final.\n\n");
    print_worker(out);
}
