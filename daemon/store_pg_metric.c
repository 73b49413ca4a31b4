/* store_pg_metric.c - points of a job: the effective view, thinned evenly where asked.
 *
 * First the counts (no block is read for them), which give the stride; then the blocks, row by
 * row, so that memory holds the reply and one block. */
#include "base/mem.h"
#include "daemon/store_pg_question.h"
#include <string.h>

#define POINTS_MAX ((int64_t)4 << 20) /* of one reply, 100 MB */

/* A point, and whose it is. */
struct metric_point {
    int64_t step, t_us;
    uint64_t bits;
};
struct metric_state {
    int64_t stride; /* every so many points of a series are kept, counted over its attempts */
    int64_t series; /* being read; 0: none yet */
    char *name, *role;
    uint32_t rank;
    uint32_t attempt, block_attempt; /* of the newest point that counts; of the block being read */
    bool is_integer;
    int64_t seen;
    Pb__Series *out; /* of this series and attempt; NULL: no point kept yet */
    size_t cap;
    bool waits; /* the newest point seen was not kept: it is, if nothing comes after it */
    struct metric_point last;
};

static bool is_effective(const Pb__MetricsRequest *request)
{
    return !request->has_attempt || request->attempt == 0;
}

static void metric_send(struct store_pg_question *question, struct store_pg_link *link)
{
    const Pb__MetricsRequest *request = (const Pb__MetricsRequest *)question->request;
    struct store_pg_value_list list = {0};
    struct store_pg_array names;

    if (!question->state)
        question->state = NEW(struct metric_state);
    store_pg_array_init(&names);
    for (size_t i = 0; i < request->n_names && i < 1000; i++) {
        store_pg_array_text(&names, request->names[i]);
        store_pg_array_row_end(&names);
    }
    store_pg_value_i64(&list, true, request->job);
    store_pg_value_array(&list, &names);
    store_pg_value_text(&list, request->role && request->role[0] ? request->role : NULL);
    store_pg_value_i64(&list, request->rank >= 0, request->rank);
    store_pg_value_i64(&list, !is_effective(request), request->attempt);
    store_pg_value_i64(&list, true, request->after_step);
    store_pg_value_send(&list, link,
                        question->stage == 0 ? STORE_METRIC_TOTAL : STORE_METRIC_BLOCK);
    store_pg_array_fini(&names);
}

static void out_start(struct store_pg_question *question, struct metric_state *state)
{
    Pb__MetricsReply *reply = (Pb__MetricsReply *)question->reply;
    Pb__Series *out = NEW(Pb__Series);

    pb__series__init(out);
    out->name = mem_strdup(state->name);
    out->role = mem_strdup(state->role);
    out->has_rank = out->has_attempt = 1;
    out->rank = state->rank;
    out->attempt = state->attempt;
    state->out = out;
    state->cap = 0;
    store_pg_question_append(&reply->series, &reply->n_series, out);
}

static void out_grow(struct metric_state *state)
{
    Pb__Series *out = state->out;

    state->cap = state->cap ? state->cap * 2 : 64;
    out->steps = mem_resize(out->steps, state->cap, sizeof(*out->steps));
    out->t_us = mem_resize(out->t_us, state->cap, sizeof(*out->t_us));
    if (state->is_integer)
        out->integers = mem_resize(out->integers, state->cap, sizeof(*out->integers));
    else
        out->values = mem_resize(out->values, state->cap, sizeof(*out->values));
}

static void out_put(struct store_pg_question *question, const struct metric_point *point)
{
    struct metric_state *state = question->state;

    if (!state->out)
        out_start(question, state);
    if (state->out->n_steps == state->cap)
        out_grow(state);
    state->out->steps[state->out->n_steps++] = point->step;
    state->out->t_us[state->out->n_t_us++] = point->t_us;
    if (state->is_integer)
        state->out->integers[state->out->n_integers++] = (int64_t)point->bits;
    else
        memcpy(&state->out->values[state->out->n_values++], &point->bits, sizeof(point->bits));
}

/* The newest point of a series is there whatever the stride says. */
static void series_end(struct store_pg_question *question)
{
    struct metric_state *state = question->state;

    if (state->waits)
        out_put(question, &state->last);
    state->waits = false;
    state->out = NULL;
    state->seen = 0;
}

/* Columns: series, name, role, rank, is_integer, attempt, last step that counts, steps, t_us,
 * doubles, integers. */
static void series_begin(struct store_pg_question *question, const PGresult *result, int row)
{
    struct metric_state *state = question->state;
    int64_t series = store_pg_value_get_i64(result, row, 0);

    state->block_attempt = (uint32_t)store_pg_value_get_i64(result, row, 5);
    if (series == state->series)
        return;
    series_end(question);
    mem_free(state->name);
    mem_free(state->role);
    state->name = store_pg_value_get_text(result, row, 1);
    state->role = store_pg_value_get_text(result, row, 2);
    state->rank = (uint32_t)store_pg_value_get_i64(result, row, 3);
    state->is_integer = store_pg_value_get_bool(result, row, 4);
    state->series = series;
}

static void series_point(struct store_pg_question *question, const struct metric_point *point)
{
    struct metric_state *state = question->state;
    Pb__MetricsReply *reply = (Pb__MetricsReply *)question->reply;

    if (!reply->has_through_step || point->step > reply->through_step) {
        reply->has_through_step = 1;
        reply->through_step = point->step;
    }
    if (state->attempt != state->block_attempt) {
        state->attempt = state->block_attempt;
        state->out = NULL;
    }
    state->waits = state->seen++ % state->stride != 0;
    if (state->waits)
        state->last = *point;
    else
        out_put(question, point);
}

static void metric_block(struct store_pg_question *question, const PGresult *result, int row)
{
    const Pb__MetricsRequest *request = (const Pb__MetricsRequest *)question->request;
    struct metric_state *state = question->state;
    struct store_pg_value_numbers steps, t_us, values;
    int64_t step_max = store_pg_value_get_i64(result, row, 6);

    series_begin(question, result, row);
    if (!store_pg_value_get_numbers(result, row, 7, &steps) ||
        !store_pg_value_get_numbers(result, row, 8, &t_us) ||
        !store_pg_value_get_numbers(result, row, state->is_integer ? 10 : 9, &values) ||
        t_us.count != steps.count || values.count != steps.count) {
        error_set(&question->err, STATUS_DATA_LOSS, "a block of points can't be read");
        return;
    }
    for (size_t i = 0; i < steps.count; i++) {
        struct metric_point point = {(int64_t)store_pg_value_number(&steps, i),
                                     (int64_t)store_pg_value_number(&t_us, i),
                                     store_pg_value_number(&values, i)};
        if (point.step > request->after_step && point.step <= step_max)
            series_point(question, &point);
    }
}

static void metric_total(struct store_pg_question *question, const PGresult *result)
{
    const Pb__MetricsRequest *request = (const Pb__MetricsRequest *)question->request;
    struct metric_state *state = question->state;
    int64_t longest = store_pg_value_get_i64(result, 0, 0);
    int64_t all = store_pg_value_get_i64(result, 0, 1);

    state->stride = 1;
    if (request->points_max)
        state->stride = (longest + request->points_max - 1) / request->points_max;
    if (state->stride < 1)
        state->stride = 1;
    if (all / state->stride > POINTS_MAX)
        error_set(&question->err, STATUS_EXHAUSTED,
                  "%lld points are more than one answer holds: ask for fewer names, points_max or "
                  "after_step",
                  (long long)all);
}

static void metric_result(struct store_pg_question *question, size_t call, const PGresult *result)
{
    (void)call;
    if (question->stage == 0) {
        if (PQntuples(result) == 1)
            metric_total(question, result);
        return;
    }
    for (int row = 0; row < PQntuples(result) && question->err.code == STATUS_OK; row++)
        metric_block(question, result, row);
}

static bool metric_settle(struct store_pg_question *question)
{
    if (question->stage++ == 0)
        return true;
    series_end(question);
    return false;
}

static void metric_fini(struct store_pg_question *question)
{
    struct metric_state *state = question->state;

    if (!state)
        return;
    mem_free(state->name);
    mem_free(state->role);
    mem_free(state);
}

const struct store_pg_question_kind store_pg_metric_kind = {
    .request = &pb__metrics_request__descriptor,
    .reply = &pb__metrics_reply__descriptor,
    .send = metric_send,
    .result = metric_result,
    .settle = metric_settle,
    .fini = metric_fini,
    .by_row = true,
};
