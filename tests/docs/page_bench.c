/* page_bench.c - docs/reference/rondo-bench.md, from the rows of figures. */
#include "tests/bench/figure.h"
#include "tests/docs/page.h"

void page_bench(const struct page_sources *sources, struct text *out)
{
    (void)sources;
    text_add(out,
             "# rondo-bench\n\nPrinted from the rows of figures by `scripts/docs.sh`. How each "
             "is measured: `tests/bench/README.md`.\n\n```sh\n"
             "rondo-bench list\nrondo-bench launch --runs 300\nrondo-bench all --json\n"
             "```\n\n");
    figure_markdown(out);
    text_add(
        out,
        "\nBeside these, each run prints its calibration (`calibrate.*`: syncs, process starts "
        "and commits a\nsecond, load), minima, and CPU time per operation of daemon, agents "
        "and database (`*.cpu_*_ms`).\n");
}
