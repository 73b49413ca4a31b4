/* page_program.c - docs/reference/rondod.md, rondo-agent.md and rondoctl.md, from option rows. */
#include "base/mem.h"
#include "base/option.h"
#include "ctl/verb.h"
#include "tests/docs/page.h"
#include <assert.h>
#include <string.h>

/* The option tables of daemon and agent; their headers have one name. */
extern const struct option_page config_page_dev, config_page_serve, config_page_ca, config_page;

static const char printed[] = "Printed from the option rows of the program by `scripts/docs.sh`.";

/* A page of its own as a section of ours. */
static void add_section(const struct option_page *page, struct text *out)
{
    text_add(out, "\n#");
    option_markdown(page, out);
}

void page_rondod(const struct page_sources *sources, struct text *out)
{
    (void)sources;
    text_addf(out,
              "# rondod\n\n%s Every option may stand in a YAML file (`--config FILE`); flags "
              "win.\n",
              printed);
    add_section(&config_page_dev, out);
    add_section(&config_page_serve, out);
    add_section(&config_page_ca, out);
}

void page_rondo_agent(const struct page_sources *sources, struct text *out)
{
    (void)sources;
    option_markdown(&config_page, out);
    text_addf(out, "\n%s Every option may stand in a YAML file (`--config FILE`); flags win.\n",
              printed);
}

/* Rows that every verb begins with: where the daemon is, and the form of the output. */
static size_t common_rows(void)
{
    size_t count = 0;
    const struct option *first = verb_table[0]->rows, *second = verb_table[1]->rows;
    while (first[count].name && second[count].name &&
           strcmp(first[count].name, second[count].name) == 0)
        count++;
    return count;
}

static void add_noun(const struct verb *noun, size_t common, struct text *out);

static void add_verb(const struct verb *verb, size_t common, struct text *out)
{
    if (verb->verbs) {
        add_noun(verb, common, out);
        return;
    }
    SCOPED_TEXT char *program = mem_printf("rondoctl %s", verb->name);
    SCOPED_TEXT char *usage = mem_printf("rondoctl %s [OPTIONS] %s", verb->name, verb->args);
    size_t len = strlen(usage);
    while (len > 0 && usage[len - 1] == ' ')
        usage[--len] = '\0';
    struct option_page page = {program, verb->summary, usage, verb->examples, verb->rows + common};
    add_section(&page, out);
}

static void add_noun(const struct verb *noun, size_t common, struct text *out)
{
    text_addf(out, "\n## rondoctl %s\n\n```text\n", noun->name);
    verb_noun_overview(noun, out);
    text_add(out, "```\n");
    for (const struct verb *const *verb = noun->verbs; *verb; verb++)
        add_verb(*verb, common, out);
}

void page_rondoctl(const struct page_sources *sources, struct text *out)
{
    size_t common = common_rows();
    struct option shared[32];
    struct option_page all = {.program = "Every verb",
                              .summary = "Options that every verb has.",
                              .usage = "rondoctl VERB [OPTIONS] [OPERANDS]",
                              .rows = shared};
    (void)sources;
    assert(common > 0 && common < COUNT_OF(shared));
    memcpy(shared, verb_table[0]->rows, common * sizeof(*shared));
    shared[common] = (struct option){0};
    text_addf(out, "# rondoctl\n\n%s Exit codes: 0 done, 1 a job failed or the answer is no,\n",
              printed);
    text_add(out, "2 wrong usage or job file (nothing was sent), 3 daemon not reached, 4 refused "
                  "or not found, 5 something broke.\n\n```text\n");
    verb_overview(out);
    text_add(out, "```\n");
    add_section(&all, out);
    for (const struct verb *const *verb = verb_table; *verb; verb++)
        add_verb(*verb, common, out);
}
