/* option_fixture.h - one config and its rows, for the tests of option*.c. */
#pragma once
#include "base/option.h"
#include "base/text.h"
#include "tests/unit/unit.h"
#include <stddef.h>

struct fixture_config {
    uint32_t lease_ms;
    uint64_t spool_bytes;
    int64_t shift;
    bool metrics, colour;
    char *state_dir, *name;
    struct option_list peers;
};

#define AT(member) offsetof(struct fixture_config, member)
static const struct option fixture_rows[] = {
    {"lease_ms", OPT_U32, AT(lease_ms), "15000", 1000, 600000, "How long a silent agent is kept."},
    {"spool_bytes", OPT_U64, AT(spool_bytes), "9000000000", 0, 0, "Room for the spool."},
    {"shift", OPT_I64, AT(shift), "-5", -10, 10, "A signed number."},
    {"metrics", OPT_BOOL, AT(metrics), "true", 0, 0, "Collect | keep metrics."},
    {"colour", OPT_BOOL, AT(colour), NULL, 0, 0, "Colour the output."},
    {"state_dir", OPT_TEXT, AT(state_dir), "/var/lib/x", 0, 20, "Where state lives."},
    {"name", OPT_TEXT, AT(name), NULL, 0, 0, "A name."},
    {"peers", OPT_LIST, AT(peers), "a,b", 0, 8, "Other hosts."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL},
};
#undef AT

static const struct option_page fixture_page = {"rondo-x", "does x", "rondo-x [options] [file...]",
                                                "  rondo-x --lease-ms 2000", fixture_rows};

struct fixture {
    struct fixture_config config;
    struct text out; /* problems or pages */
    char *dir;
};

static int fixture_setup(void **state)
{
    struct fixture *fixture = NEW(struct fixture);
    option_defaults(fixture_rows, &fixture->config);
    text_init(&fixture->out, 0);
    fixture->dir = unit_dir_create();
    *state = fixture;
    return 0;
}

static int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    option_fini(fixture_rows, &fixture->config);
    text_fini(&fixture->out);
    unit_dir_destroy(fixture->dir);
    mem_free(fixture);
    return 0;
}

#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
