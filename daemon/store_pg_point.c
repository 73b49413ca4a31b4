#include "daemon/store_pg_point.h"
#include "base/map.h"
#include "base/mem.h"
#include "daemon/store_pg_array.h"
#include "daemon/store_pg_value.h"
#include <string.h>

#define BLOCK_POINTS_MAX 4096
#define POINTS_MAX       ((size_t)8 << 20) /* of one batch: 300 MB at most */
#define NAME_CAP         1024

struct store_pg_point_cache {
    struct map *ids; /* series key -> its number, as a pointer's bits */
    size_t series_max;
};

/* Points of one series from one incarnation of a worker. */
struct run {
    char *key;
    const char *name; /* within key */
    int64_t job, attempt, incarnation, rank;
    char *role;
    bool is_integer;
    int64_t series; /* 0: not known yet */
    size_t count, cap;
    int64_t *steps, *t_us;
    uint64_t *bits;
};

struct store_pg_point_set {
    struct store_pg_point_cache *cache;
    struct map *runs; /* run key -> struct run */
    size_t points;
    struct run **asked; /* runs whose series was asked for, in order */
    size_t asked_count;
    struct store_pg_array loss;
};

struct store_pg_point_cache *store_pg_point_cache_create(size_t series_max)
{
    struct store_pg_point_cache *cache = NEW(struct store_pg_point_cache);

    cache->ids = map_create();
    cache->series_max = series_max;
    return cache;
}

void store_pg_point_cache_destroy(struct store_pg_point_cache *cache)
{
    if (!cache)
        return;
    map_destroy(cache->ids);
    mem_free(cache);
}

struct store_pg_point_set *store_pg_point_create(struct store_pg_point_cache *cache)
{
    struct store_pg_point_set *set = NEW(struct store_pg_point_set);

    if (map_count(cache->ids) >= cache->series_max) {
        map_destroy(cache->ids); /* those in use come back with their next batch */
        cache->ids = map_create();
    }
    set->cache = cache;
    set->runs = map_create();
    store_pg_array_init(&set->loss);
    return set;
}

static void run_destroy(struct run *run)
{
    mem_free(run->key);
    mem_free(run->role);
    mem_free(run->steps);
    mem_free(run->t_us);
    mem_free(run->bits);
    mem_free(run);
}

void store_pg_point_destroy(struct store_pg_point_set *set)
{
    if (!set)
        return;
    size_t at = 0;
    for (struct run *run; (run = map_next(set->runs, &at));)
        run_destroy(run);
    map_destroy(set->runs);
    store_pg_array_fini(&set->loss);
    mem_free(set->asked);
    mem_free(set);
}

/* "<job>/<rank>/<i or d>/<role>/<name>": role may hold no '/' that matters, the length is in front.
 */
static char *series_key(const Pb__ReportBatch *batch, const char *name, bool is_integer)
{
    const char *role = batch->role ? batch->role : "";

    return mem_printf("%lld/%u/%c/%zu/%s/%s", (long long)batch->job, batch->rank,
                      is_integer ? 'i' : 'd', strlen(role), role, name);
}

static struct run *run_find(struct store_pg_point_set *set, const Pb__ReportBatch *batch,
                            const char *name, bool is_integer)
{
    SCOPED_TEXT char *key = series_key(batch, name, is_integer);
    SCOPED_TEXT char *run_key = mem_printf("%u/%u/%s", batch->attempt, batch->incarnation, key);
    struct run *run = map_get_text(set->runs, run_key);

    if (run)
        return run;
    run = NEW(struct run);
    run->series = (int64_t)(intptr_t)map_get_text(set->cache->ids, key);
    run->role = mem_strdup(batch->role ? batch->role : "");
    run->name = key + strlen(key) - strlen(name);
    run->key = TAKE(key);
    run->job = batch->job;
    run->rank = batch->rank;
    run->attempt = batch->attempt;
    run->incarnation = batch->incarnation;
    run->is_integer = is_integer;
    map_put_text(set->runs, run_key, run);
    return run;
}

static void run_add(struct run *run, int64_t step, int64_t t_us, uint64_t bits)
{
    if (run->count == run->cap) {
        run->cap = run->cap ? run->cap * 2 : 64;
        run->steps = mem_resize(run->steps, run->cap, sizeof(*run->steps));
        run->t_us = mem_resize(run->t_us, run->cap, sizeof(*run->t_us));
        run->bits = mem_resize(run->bits, run->cap, sizeof(*run->bits));
    }
    run->steps[run->count] = step;
    run->t_us[run->count] = t_us;
    run->bits[run->count++] = bits;
}

/* A worker's reports mostly carry the same names in the same places: recent remembers them. */
static void add_report(struct store_pg_point_set *set, const Pb__ReportBatch *batch,
                       const Pb__Report *report, struct run **recent, size_t recent_max)
{
    for (size_t i = 0; i < report->n_names; i++) {
        const char *name = report->names[i];
        bool is_integer = i >= report->n_values;
        uint64_t bits = 0;

        if (is_integer && i - report->n_values >= report->n_integers)
            return; /* names without a number */
        if (strlen(name) > NAME_CAP)
            continue;
        if (is_integer)
            bits = (uint64_t)report->integers[i - report->n_values];
        else
            memcpy(&bits, &report->values[i], sizeof(bits));
        struct run *run = i < recent_max ? recent[i] : NULL;
        if (!run || run->is_integer != is_integer || strcmp(run->name, name) != 0)
            run = run_find(set, batch, name, is_integer);
        if (i < recent_max)
            recent[i] = run;
        run_add(run, report->step, report->t_us, bits);
        set->points++;
    }
}

void store_pg_point_add(struct store_pg_point_set *set, const Pb__ReportBatch *batch)
{
    struct run *recent[32] = {0};

    for (size_t i = 0; i < batch->n_reports && set->points <= POINTS_MAX; i++)
        add_report(set, batch, batch->reports[i], recent, COUNT_OF(recent));
    if (batch->dropped == 0)
        return;
    store_pg_array_i64(&set->loss, true, batch->job);
    store_pg_array_i64(&set->loss, true, batch->attempt);
    store_pg_array_text(&set->loss, batch->role ? batch->role : "");
    store_pg_array_i64(&set->loss, true, batch->rank);
    store_pg_array_i64(&set->loss, true, (int64_t)batch->dropped);
    store_pg_array_row_end(&set->loss);
}

size_t store_pg_point_count(const struct store_pg_point_set *set)
{
    return set->points;
}

enum status store_pg_point_check(const struct store_pg_point_set *set, struct error *err)
{
    if (set->points > POINTS_MAX)
        return error_set(err, STATUS_EXHAUSTED, "batch: more than %zu points", POINTS_MAX);
    return STATUS_OK;
}

bool store_pg_point_unknown(const struct store_pg_point_set *set)
{
    size_t at = 0;

    for (const struct run *run; (run = map_next(set->runs, &at));)
        if (!run->series)
            return true;
    return false;
}

void store_pg_point_send_series(struct store_pg_point_set *set, struct store_pg_link *link)
{
    struct store_pg_array array;
    size_t at = 0;

    store_pg_array_init(&array);
    set->asked = mem_resize(set->asked, map_count(set->runs) + 1, sizeof(struct run *));
    set->asked_count = 0;
    for (struct run *run; (run = map_next(set->runs, &at));) {
        if (run->series)
            continue;
        store_pg_array_i64(&array, true, run->job);
        store_pg_array_text(&array, run->role);
        store_pg_array_i64(&array, true, run->rank);
        store_pg_array_text(&array, run->name);
        store_pg_array_bool(&array, run->is_integer);
        store_pg_array_row_end(&array);
        set->asked[set->asked_count++] = run;
    }
    store_pg_array_send(&array, link, STORE_SERIES_PUT);
    store_pg_array_fini(&array);
}

void store_pg_point_series(struct store_pg_point_set *set, const PGresult *result)
{
    for (int row = 0; row < PQntuples(result) && (size_t)row < set->asked_count; row++)
        set->asked[row]->series = store_pg_value_get_i64(result, row, 0);
}

void store_pg_point_learn(struct store_pg_point_set *set)
{
    for (size_t i = 0; i < set->asked_count; i++)
        map_put_text(set->cache->ids, set->asked[i]->key, (void *)(intptr_t)set->asked[i]->series);
}

struct block_columns {
    struct store_pg_array head;
    struct store_pg_array_raw steps, t_us, doubles, integers;
};

static void add_block(struct block_columns *out, const struct run *run, size_t from, size_t count)
{
    struct store_pg_array_raw *values = run->is_integer ? &out->integers : &out->doubles;
    int64_t first = INT64_MAX, last = INT64_MIN;
    int64_t at = (int64_t)out->steps.count, value_at = (int64_t)values->count;

    for (size_t i = from; i < from + count; i++) {
        first = run->steps[i] < first ? run->steps[i] : first;
        last = run->steps[i] > last ? run->steps[i] : last;
    }
    store_pg_array_raw_add(&out->steps, (const uint64_t *)run->steps + from, count);
    store_pg_array_raw_add(&out->t_us, (const uint64_t *)run->t_us + from, count);
    store_pg_array_raw_add(values, run->bits + from, count);
    store_pg_array_i64(&out->head, true, run->series);
    store_pg_array_i64(&out->head, true, run->attempt);
    store_pg_array_i64(&out->head, true, run->incarnation);
    store_pg_array_i64(&out->head, true, first);
    store_pg_array_i64(&out->head, true, last);
    store_pg_array_i64(&out->head, true, (int64_t)count);
    store_pg_array_bool(&out->head, run->is_integer);
    store_pg_array_i64(&out->head, true, at);
    store_pg_array_i64(&out->head, true, value_at);
    store_pg_array_row_end(&out->head);
}

static void send_blocks(struct store_pg_point_set *set, struct store_pg_link *link)
{
    struct block_columns out;
    size_t at = 0;

    store_pg_array_init(&out.head);
    store_pg_array_raw_init(&out.steps, STORE_PG_INT8);
    store_pg_array_raw_init(&out.t_us, STORE_PG_INT8);
    store_pg_array_raw_init(&out.doubles, STORE_PG_FLOAT8);
    store_pg_array_raw_init(&out.integers, STORE_PG_INT8);
    for (struct run *run; (run = map_next(set->runs, &at));)
        for (size_t from = 0; from < run->count; from += BLOCK_POINTS_MAX)
            add_block(&out, run, from,
                      run->count - from < BLOCK_POINTS_MAX ? run->count - from : BLOCK_POINTS_MAX);
    struct store_pg_array_raw *const raws[] = {&out.steps, &out.t_us, &out.doubles, &out.integers};
    store_pg_array_send_raw(&out.head, raws, COUNT_OF(raws), link, STORE_BLOCK_PUT);
    store_pg_array_fini(&out.head);
    for (size_t i = 0; i < COUNT_OF(raws); i++)
        text_fini(&raws[i]->data);
}

void store_pg_point_send(struct store_pg_point_set *set, struct store_pg_link *link)
{
    send_blocks(set, link);
    store_pg_array_send(&set->loss, link, STORE_LOSS_ADD);
}
