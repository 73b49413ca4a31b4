/* test_vault_fetch.c - a checkpoint is brought here from those that have it: the manifest last,
 * other bytes from the next source, and a clear word when nobody has them. */
#include "agent/vault_fetch.h"
#include "checkpoint/vault.h"
#include "proto/text/message.h"
#include "tests/unit/agent/peer_rig.h"
#include <limits.h>

static Pb__FetchPart part = PB__FETCH_PART__INIT;

/* The part as a rank wrote it, and a manifest of it in n1's vault; answers the manifest's digest.
 */
static void seal(struct peer_rig *rig, char digest[65])
{
    Pb__Checkpoint row = PB__CHECKPOINT__INIT;
    Pb__CheckpointPart *written = NULL;
    struct text manifest;

    assert_int_equal(unlink(unit_path(rig->from, PEER_STEP "/manifest.json")), 0);
    assert_int_equal(vault_part_digest(rig->from, PEER_STEP, "trainer", 0, NULL, &written, NULL),
                     STATUS_OK);
    mem_free(written->node);
    written->node = mem_strdup("n1");
    row.has_id = row.has_job = row.has_attempt = row.has_step = row.has_samples = true;
    row.has_world = row.has_parent = row.has_created_us = true;
    row.id = 12;
    row.job = 7;
    row.attempt = 3;
    row.step = 120;
    row.world = 1;
    row.path = (char *)PEER_STEP;
    row.n_parts = 1;
    row.parts = &written;
    text_init(&manifest, 0);
    vault_manifest_build(&row, &manifest, digest);
    assert_int_equal(vault_seal(rig->from, PEER_STEP, manifest.data, manifest.len, NULL),
                     STATUS_OK);
    text_fini(&manifest);
    pb__checkpoint_part__free_unpacked(written, NULL);
}

static void fill_source(struct peer_rig *rig, Pb__FetchSource *source, Pb__FetchPart **parts)
{
    pb__fetch_source__init(source);
    pb__fetch_part__init(&part);
    part.role = (char *)"trainer";
    part.has_rank = true;
    parts[0] = &part;
    source->node = (char *)"n1";
    source->address = (char *)"127.0.0.1";
    source->has_port = source->has_ticket = true;
    source->port = peer_server_port(rig->server);
    source->ticket.data = (uint8_t *)rig->ticket.data;
    source->ticket.len = rig->ticket.len;
    source->n_parts = 1;
    source->parts = parts;
}

static struct vault_job *job_of(struct peer_rig *rig, char *digest, Pb__FetchSource **sources,
                                size_t count)
{
    static struct peer_link_files files;
    Pb__DesiredFetch wanted = PB__DESIRED_FETCH__INIT;
    struct vault_job *job = vault_job_create(VAULT_JOB_FETCH, rig->to, PEER_STEP, NULL, 0);

    peer_files_fini(&files);
    files = peer_files(rig, "n2");
    wanted.has_checkpoint = true;
    wanted.checkpoint = 12;
    wanted.vault = (char *)"default";
    wanted.path = (char *)PEER_STEP;
    wanted.manifest_digest = digest;
    wanted.n_sources = count;
    wanted.sources = sources;
    job->fetch = vault_fetch_create(&wanted, &files);
    return job;
}

static bool is_sealed(const struct peer_rig *rig)
{
    return access(unit_path(rig->to, PEER_STEP "/manifest.json"), F_OK) == 0;
}

static void what_is_elsewhere_is_here_then_sealed(void **state)
{
    struct peer_rig *rig = *state;
    Pb__FetchSource source, *sources[] = {&source};
    Pb__FetchPart *parts[1];
    char digest[65];
    seal(rig, digest);
    fill_source(rig, &source, parts);
    struct vault_job *job = job_of(rig, digest, sources, 1);
    assert_int_equal(vault_job_run(job, NULL), STATUS_OK);
    assert_true(job->fetch->came);
    assert_int_equal(job->fetch->copies_count, 1);
    assert_int_equal(job->fetch->copies[0]->bytes, PEER_BYTES);
    assert_int_equal(atomic_load(&job->done_bytes), PEER_BYTES);
    assert_string_equal(job->fetch->note, "from node n1");
    assert_int_equal(vault_verify(rig->to, PEER_STEP, digest, true, NULL), STATUS_OK);
    vault_job_destroy(job);
    /* Once more, with nobody to ask: it is here. */
    source.port = 1;
    job = job_of(rig, digest, sources, 1);
    assert_int_equal(vault_job_run(job, NULL), STATUS_OK);
    assert_false(job->fetch->came);
    assert_int_equal(job->fetch->copies_count, 1);
    vault_job_destroy(job);
}

static void a_source_that_is_away_is_passed_over(void **state)
{
    struct peer_rig *rig = *state;
    Pb__FetchSource away, source, *sources[] = {&away, &source};
    Pb__FetchPart *parts[1];
    char digest[65];
    struct error err;
    seal(rig, digest);
    fill_source(rig, &source, parts);
    away = source;
    away.node = (char *)"n3";
    away.address = NULL;
    struct vault_job *job = job_of(rig, digest, sources, 2);
    assert_int_equal(vault_job_run(job, NULL), STATUS_OK);
    vault_job_destroy(job);
    assert_int_equal(file_remove_tree(rig->to, NULL), STATUS_OK);
    assert_int_equal(file_make_dirs(rig->to, 0755, NULL), STATUS_OK);
    job = job_of(rig, digest, sources, 1);
    assert_int_equal(vault_job_run(job, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "n3"));
    vault_job_destroy(job);
}

static void other_bytes_are_nobodys_checkpoint(void **state)
{
    struct peer_rig *rig = *state;
    Pb__FetchSource source, *sources[] = {&source};
    Pb__FetchPart *parts[1];
    char digest[65];
    struct error err;
    seal(rig, digest);
    fill_source(rig, &source, parts);
    int fd = open(unit_path(rig->from, PEER_STEP "/trainer-0/a"), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "!", 1, 4 << 20), 1);
    (void)close(fd);
    struct vault_job *job = job_of(rig, digest, sources, 1);
    assert_int_equal(vault_job_run(job, &err), STATUS_DATA_LOSS);
    assert_non_null(strstr(err.text, "trainer-0/a"));
    assert_non_null(strstr(err.text, "n1"));
    assert_false(is_sealed(rig));
    vault_job_destroy(job);
}

static void another_manifest_is_not_believed(void **state)
{
    struct peer_rig *rig = *state;
    Pb__FetchSource source, *sources[] = {&source};
    Pb__FetchPart *parts[1];
    char digest[65];
    seal(rig, digest);
    fill_source(rig, &source, parts);
    digest[0] = digest[0] == 'a' ? 'b' : 'a';
    struct vault_job *job = job_of(rig, digest, sources, 1);
    assert_int_equal(vault_job_run(job, NULL), STATUS_DATA_LOSS);
    assert_false(is_sealed(rig));
    vault_job_destroy(job);
}

/* A file of the part is gone from its node: that is for good, not for another try. */
static void bytes_that_are_gone_are_lost(void **state)
{
    struct peer_rig *rig = *state;
    Pb__FetchSource source, *sources[] = {&source};
    Pb__FetchPart *parts[1];
    char digest[65];
    seal(rig, digest);
    fill_source(rig, &source, parts);
    assert_int_equal(unlink(unit_path(rig->from, PEER_STEP "/trainer-0/a")), 0);
    struct vault_job *job = job_of(rig, digest, sources, 1);
    assert_int_equal(vault_job_run(job, NULL), STATUS_DATA_LOSS);
    assert_false(is_sealed(rig));
    vault_job_destroy(job);
}

static void told_to_stop_it_stops(void **state)
{
    struct peer_rig *rig = *state;
    Pb__FetchSource source, *sources[] = {&source};
    Pb__FetchPart *parts[1];
    char digest[65];
    seal(rig, digest);
    fill_source(rig, &source, parts);
    struct vault_job *job = job_of(rig, digest, sources, 1);
    atomic_store(&job->stop, true);
    assert_int_equal(vault_job_run(job, NULL), STATUS_CANCELLED);
    assert_false(is_sealed(rig));
    vault_job_destroy(job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, peer_setup, peer_teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_elsewhere_is_here_then_sealed), TEST(a_source_that_is_away_is_passed_over),
        TEST(other_bytes_are_nobodys_checkpoint),    TEST(another_manifest_is_not_believed),
        TEST(bytes_that_are_gone_are_lost),          TEST(told_to_stop_it_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
