/* test_draft.c - drafts become rows when the turn is durable, and vanish when it is not. */
#include "daemon/draft.h"
#include "proto/pb.h"
#include "tests/unit/unit.h"

struct fixture {
    struct draft_set set;
    struct entry entry;
    int settled, committed;
};

static void settled(struct entry *entry, bool committed, void *arg)
{
    struct fixture *f = arg;

    assert_ptr_equal(entry, &f->entry);
    f->settled++;
    f->committed += committed;
}

static ProtobufCMessage *make_job(const char *name)
{
    Pb__Job *job = mem_array(1, sizeof(*job));

    pb__job__init(job);
    job->spec = mem_array(1, sizeof(*job->spec));
    pb__job_spec__init(job->spec);
    draft_text(&job->spec->name, name);
    return &job->base;
}

static uint64_t version(const ProtobufCMessage *message)
{
    return ((const Pb__Job *)message)->version;
}

static int setup(void **state)
{
    struct fixture *f = NEW(struct fixture);

    draft_set_init(&f->set);
    entry_init(&f->entry, CHANGE_JOB, settled, f);
    draft_add_take(&f->set, &f->entry, make_job("first"));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    entry_fini(&f->entry);
    mem_free(f);
    return 0;
}

static void readers_see_only_what_is_committed(void **state)
{
    struct fixture *f = *state;

    assert_null(f->entry.row);
    assert_ptr_equal(draft_view(&f->entry), f->entry.draft);
    draft_commit(&f->set);
    assert_non_null(f->entry.row);
    assert_null(f->entry.draft);
    ((Pb__Job *)draft_edit(&f->set, &f->entry))->version = 2;
    assert_int_equal(version(f->entry.row), 0);
    assert_int_equal(version(draft_view(&f->entry)), 2);
    draft_commit(&f->set);
    assert_int_equal(version(f->entry.row), 2);
    assert_int_equal(f->settled, 2);
    assert_int_equal(f->committed, 2);
}

static void aborted_drafts_leave_the_row_as_it_was(void **state)
{
    struct fixture *f = *state;

    draft_commit(&f->set);
    ((Pb__Job *)draft_edit(&f->set, &f->entry))->version = 2;
    draft_abort(&f->set);
    assert_null(f->entry.draft);
    assert_int_equal(version(f->entry.row), 0);
    assert_int_equal(f->committed, 1);
    assert_int_equal(f->settled, 2);
}

static void a_new_row_that_is_aborted_never_was(void **state)
{
    struct fixture *f = *state;

    draft_abort(&f->set);
    assert_null(f->entry.row);
    assert_null(draft_view(&f->entry));
    assert_int_equal(f->committed, 0);
}

static void editing_twice_is_one_entry_of_the_set(void **state)
{
    struct fixture *f = *state;

    draft_commit(&f->set);
    ProtobufCMessage *first = draft_edit(&f->set, &f->entry);
    assert_ptr_equal(draft_edit(&f->set, &f->entry), first);
    assert_int_equal(f->set.count, 1);
    draft_abort(&f->set);
    assert_int_equal(f->set.count, 0);
    assert_true(list_is_empty(&f->set.entries));
}

/* A spec may be large and never changes. */
static void row_and_draft_share_the_spec(void **state)
{
    struct fixture *f = *state;

    draft_commit(&f->set);
    const Pb__JobSpec *spec = ((const Pb__Job *)f->entry.row)->spec;
    for (int round = 0; round < 3; round++) {
        assert_ptr_equal(((Pb__Job *)draft_edit(&f->set, &f->entry))->spec, spec);
        if (round == 1)
            draft_abort(&f->set);
        else
            draft_commit(&f->set);
        assert_ptr_equal(((const Pb__Job *)f->entry.row)->spec, spec);
        assert_string_equal(spec->name, "first");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(readers_see_only_what_is_committed, setup, teardown),
        cmocka_unit_test_setup_teardown(aborted_drafts_leave_the_row_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_row_that_is_aborted_never_was, setup, teardown),
        cmocka_unit_test_setup_teardown(editing_twice_is_one_entry_of_the_set, setup, teardown),
        cmocka_unit_test_setup_teardown(row_and_draft_share_the_spec, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
