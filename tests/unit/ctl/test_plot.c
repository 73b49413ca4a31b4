/* test_plot.c - lines drawn with characters. */
#include "ctl/plot.h"
#include "ctl/term.h"
#include "tests/unit/unit.h"
#include <math.h>

static struct plot_options ascii = {.width = 40, .height = 8, .x_name = "step"};

static void expect(const struct plot_series *series, size_t count,
                   const struct plot_options *options, const char *wanted)
{
    struct text out;
    text_init(&out, 0);
    plot_draw(series, count, options, &out);
    assert_string_equal(text_get(&out), wanted);
    text_fini(&out);
}

static void a_falling_line_in_ascii(void **state)
{
    static const double x[] = {0, 27}, y[] = {4, 0};
    (void)state;
    struct plot_series loss = {"loss", x, y, 2};
    expect(&loss, 1, &ascii,
           "            * loss\n"
           "         4 |****                        \n"
           "           |    *******                 \n"
           "         2 |           ******           \n"
           "           |                 *******    \n"
           "         0 |                        ****\n"
           "           +----------------------------\n"
           "            0          step           27\n");
}

static void gaps_flat_lines_and_nothing(void **state)
{
    static const double x[] = {1, 2, 3}, gap[] = {1, NAN, 1}, none[] = {NAN, INFINITY, -INFINITY};
    struct text out;
    (void)state;
    struct plot_series flat = {"flat", x, gap, 3}, empty = {"none", x, none, 3};
    text_init(&out, 0);
    plot_draw(&flat, 1, &ascii, &out);
    assert_non_null(strstr(text_get(&out), "         1 |*                          *\n"));
    text_fini(&out);
    expect(&empty, 1, &ascii, "no finite points to draw\n");
    expect(NULL, 0, &ascii, "no finite points to draw\n");
}

static void huge_values_stay_inside(void **state)
{
    static const double x[] = {-1e300, 1e308, 1e308}, y[] = {-1.7e308, 1.7e308, 0};
    struct text out;
    (void)state;
    struct plot_series series = {"x", x, y, 3};
    struct plot_options options = {.width = 1, .height = 1, .unicode = true, .x_name = "s"};
    text_init(&out, 0);
    plot_draw(&series, 1, &options, &out);
    assert_true(out.len > 0);
    text_fini(&out);
}

static void several_series_have_letters_or_colours(void **state)
{
    static const double x[] = {0, 1}, up[] = {0, 1}, down[] = {1, 0};
    struct text out;
    (void)state;
    struct plot_series series[8];
    for (size_t i = 0; i < 8; i++)
        series[i] = (struct plot_series){i ? "b" : "a", x, i ? up : down, 2};
    text_init(&out, 0);
    plot_draw(series, 8, &ascii, &out);
    assert_non_null(
        strstr(text_get(&out), "* a   o b   + b   x b   # b   @ b   (2 more not drawn)"));
    text_reset(&out);
    struct plot_options rich = {
        .width = 60, .height = 12, .unicode = true, .colour = true, .x_name = "step"};
    plot_draw(series, 2, &rich, &out);
    assert_non_null(strstr(text_get(&out), "\x1b[36m"));
    assert_non_null(strstr(text_get(&out), "\u2502"));
    text_fini(&out);
}

static void lines_fit_the_width(void **state)
{
    double x[500], y[500];
    struct text out;
    (void)state;
    for (int i = 0; i < 500; i++) {
        x[i] = i;
        y[i] = (i - 250.0) * (i - 250.0) * 1e9;
    }
    struct plot_series series = {"bowl", x, y, 500};
    struct plot_options rich = {.width = 100, .height = 20, .unicode = true, .x_name = "step"};
    text_init(&out, 0);
    plot_draw(&series, 1, &rich, &out);
    char *copy = mem_strdup(text_get(&out)), *save;
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        assert_true(term_width(line) <= 100);
    mem_free(copy);
    text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_falling_line_in_ascii),
        cmocka_unit_test(gaps_flat_lines_and_nothing),
        cmocka_unit_test(huge_values_stay_inside),
        cmocka_unit_test(several_series_have_letters_or_colours),
        cmocka_unit_test(lines_fit_the_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
