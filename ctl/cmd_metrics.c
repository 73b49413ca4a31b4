/* cmd_metrics.c - what workers reported: summary, points, lines drawn. Loop thread.
 *
 * Following asks each second for the points behind the highest step printed. */
#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/curve.h"
#include "ctl/job_arg.h"
#include "ctl/job_state.h"
#include "ctl/output.h"
#include "proto/text/text_scalar.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct config {
    struct connect_flags connect;
    char *role;
    int64_t rank, after_step;
    uint32_t attempt, points_max;
    bool follow, plot, points;
};
#define AT(member) offsetof(struct config, member)

static const struct option rows[] = {
    CONNECT_ROWS,
    {"plot", OPT_BOOL, AT(plot), "false", 0, 0, "Draw the series as lines over the step."},
    {"points", OPT_BOOL, AT(points), "false", 0, 0, "Print every point: name, rank, step, value."},
    {"follow", OPT_BOOL, AT(follow), "false", 0, 0,
     "Go on printing new points until the job ends (with --plot: draw at the end)."},
    {"role", OPT_TEXT, AT(role), NULL, 0, 63, "Workers of this role (default: the first)."},
    {"rank", OPT_I64, AT(rank), "0", -1, 99999, "Worker of this rank; -1: all."},
    {"attempt", OPT_U32, AT(attempt), "0", 0, UINT32_MAX,
     "As one attempt saw it; 0: as it counts, without what a resume took back."},
    {"after_step", OPT_I64, AT(after_step), "-1", -1, INT64_MAX, "Only points behind this step."},
    {"points_max", OPT_U32, AT(points_max), "0", 0, UINT32_MAX,
     "At most so many points a series, evenly thinned; 0: all."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static const struct table_column columns[] = {
    {"NAME", TABLE_LEFT},     {"ROLE", TABLE_LEFT},    {"RANK", TABLE_RIGHT},
    {"ATTEMPT", TABLE_RIGHT}, {"POINTS", TABLE_RIGHT}, {"STEP", TABLE_RIGHT},
    {"LAST", TABLE_RIGHT},    {"LOWEST", TABLE_RIGHT}, {"HIGHEST", TABLE_RIGHT}};

struct asking {
    const struct config *config;
    struct connect *connect;
    int64_t job, after_step;
    char **names;
    size_t names_count;
};

static int ask(struct asking *asking, Pb__MetricsReply **reply)
{
    const struct config *config = asking->config;
    Pb__MetricsRequest request = PB__METRICS_REQUEST__INIT;
    request.has_job = request.has_attempt = request.has_rank = request.has_after_step = 1;
    request.job = asking->job;
    request.names = asking->names;
    request.n_names = asking->names_count;
    request.attempt = config->attempt;
    request.role = *config->role ? config->role : NULL;
    request.rank = (int32_t)config->rank;
    request.after_step = asking->after_step;
    request.has_points_max = config->points_max > 0;
    request.points_max = config->points_max;
    return connect_ask(asking->connect, "Metrics", &request.base, (ProtobufCMessage **)reply);
}

/* Point i, exactly. */
static void value_text(const Pb__Series *series, size_t i, char out[TEXT_SCALAR_DOUBLE])
{
    if (series->n_values)
        text_scalar_print_double(series->values[i], out);
    else
        snprintf(out, TEXT_SCALAR_DOUBLE, "%" PRId64, series->integers[i]);
}

/* Integers are compared as such: next to 2^53 several of them are one double. */
static bool is_less(const Pb__Series *series, size_t a, size_t b)
{
    return series->n_values ? series->values[a] < series->values[b]
                            : series->integers[a] < series->integers[b];
}

static void add_series(struct table *table, const Pb__Series *series)
{
    size_t count = curve_points(series), low = 0, high = 0;
    char text[TEXT_SCALAR_DOUBLE];
    if (count == 0)
        return;
    for (size_t i = 1; i < count; i++) {
        low = is_less(series, i, low) || isnan(curve_value(series, low)) ? i : low;
        high = is_less(series, high, i) || isnan(curve_value(series, high)) ? i : high;
    }
    table_add(table, series->name);
    table_add(table, series->role);
    table_addf(table, "%u", series->rank);
    table_addf(table, "%u", series->attempt);
    table_addf(table, "%zu", count);
    table_addf(table, "%" PRId64, series->steps[count - 1]);
    value_text(series, count - 1, text);
    table_add(table, text);
    value_text(series, low, text);
    table_add(table, text);
    value_text(series, high, text);
    table_add(table, text);
}

static void print_points(const Pb__MetricsReply *reply)
{
    char value[TEXT_SCALAR_DOUBLE], name[300];
    for (size_t s = 0; s < reply->n_series; s++) {
        const Pb__Series *series = reply->series[s];
        term_fit(series->name ? series->name : "-", 100, name, sizeof name);
        for (size_t i = 0; i < curve_points(series); i++) {
            value_text(series, i, value);
            printf("%s %u %" PRId64 " %s\n", name, series->rank, series->steps[i], value);
        }
    }
    fflush(stdout);
}

static void print(const struct config *config, enum output_format format,
                  const Pb__MetricsReply *reply)
{
    if (format != OUTPUT_TABLE) {
        output_message(format, &reply->base);
    } else if (config->plot) {
        if (!curve_print(reply->series, reply->n_series, 20))
            printf("no points\n");
    } else if (config->points || config->follow) {
        print_points(reply);
    } else {
        struct table *table = table_create(columns, COUNT_OF(columns));
        for (size_t i = 0; i < reply->n_series; i++)
            add_series(table, reply->series[i]);
        output_table_take(table);
    }
}

static int has_ended(struct asking *asking, bool *ended)
{
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    Pb__ListJobsReply *reply;
    filter.ids = &asking->job;
    filter.n_ids = 1;
    request.filter = &filter;
    request.has_brief = request.brief = 1;
    int code = connect_ask(asking->connect, "ListJobs", &request.base, (ProtobufCMessage **)&reply);
    if (code != VERB_OK)
        return code;
    *ended = reply->n_jobs == 0 || job_state_ended(reply->jobs[0]->state);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return VERB_OK;
}

/* The highest step printed, so that the next question begins behind it. */
static void go_behind(struct asking *asking, const Pb__MetricsReply *reply)
{
    for (size_t s = 0; s < reply->n_series; s++)
        for (size_t i = 0; i < curve_points(reply->series[s]); i++)
            if (reply->series[s]->steps[i] > asking->after_step)
                asking->after_step = reply->series[s]->steps[i];
}

/* Each second. A restart of the daemon is waited for within --timeout, time and again. */
static int follow(struct asking *asking, enum output_format format)
{
    bool ended = false, last = false;
    int code = VERB_OK;
    while (code == VERB_OK && !last) {
        Pb__MetricsReply *reply;
        last = ended; /* one more question after the end */
        code = has_ended(asking, &ended);
        if (code == VERB_OK && (!asking->config->plot || last))
            code = ask(asking, &reply);
        else
            reply = NULL;
        if (code == VERB_OK && reply) {
            print(asking->config, format, reply);
            if (!asking->config->plot)
                go_behind(asking, reply);
            protobuf_c_message_free_unpacked(&reply->base, NULL);
        }
        if (code == VERB_OK && !last)
            connect_pause(ended ? 0 : 10);
    }
    return code;
}

/* Nothing came for these names: what does the job have? */
static int say_missing(struct asking *asking)
{
    struct asking all = *asking;
    Pb__MetricsReply *reply;
    struct text list;
    all.names_count = 0;
    int code = ask(&all, &reply);
    if (code != VERB_OK)
        return code;
    if (reply->n_series == 0) {
        protobuf_c_message_free_unpacked(&reply->base, NULL);
        return job_arg_check(asking->connect, asking->job);
    }
    const char **names = mem_array(reply->n_series, sizeof(*names));
    size_t count = 0;
    text_init(&list, 600);
    for (size_t i = 0; i < reply->n_series; i++) {
        if (count > 0 && strcmp(names[count - 1], reply->series[i]->name) == 0)
            continue; /* of another rank: they are sorted by name */
        names[count++] = reply->series[i]->name;
        text_addf(&list, "%s%s", count > 1 ? ", " : "", names[count - 1]);
    }
    const char *near = text_nearest(asking->names[0], names, count);
    output_error("job %" PRId64 " has no points of '%s', but of %s%s%s%s", asking->job,
                 asking->names[0], text_get(&list), near ? "; did you mean '" : "",
                 near ? near : "", near ? "'?" : "");
    text_fini(&list);
    mem_free(names);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return VERB_REFUSED;
}

/* Nothing came of this attempt, role and rank: has the job points at all? While it lives they may
 * come yet: a new attempt has none at first. */
static int say_elsewhere(struct asking *asking)
{
    bool ended = false;
    int looked = has_ended(asking, &ended);
    if (looked != VERB_OK || !ended)
        return looked;
    const struct config *config = asking->config;
    struct config wide = *config;
    struct asking all = *asking;
    Pb__MetricsReply *reply;
    wide.attempt = 0;
    wide.role = "";
    wide.rank = -1;
    wide.points_max = 1;
    all.config = &wide;
    all.names_count = 0;
    int code = ask(&all, &reply);
    if (code != VERB_OK)
        return code;
    bool some = reply->n_series > 0;
    const char *role = some && reply->series[0]->role ? reply->series[0]->role : "-";
    if (some)
        output_error("job %" PRId64
                     " has points, such as role %s, rank %u, attempt %u, but none of "
                     "the --role, --rank, --attempt and name given",
                     asking->job, role, reply->series[0]->rank, reply->series[0]->attempt);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return some ? VERB_REFUSED : job_arg_check(asking->connect, asking->job);
}

static int say_none(struct asking *asking)
{
    bool ended = false;
    int code = has_ended(asking, &ended);
    if (code == VERB_OK)
        output_text("", ended ? "no points" : "no points yet");
    return code;
}

static int say_empty(struct asking *asking)
{
    if (asking->after_step < 0 &&
        (asking->config->attempt || *asking->config->role || asking->config->rank > 0))
        return say_elsewhere(asking);
    bool narrowed = asking->after_step >= 0;
    return asking->names_count > 0 && !narrowed ? say_missing(asking)
                                                : job_arg_check(asking->connect, asking->job);
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    enum output_format format;
    Pb__MetricsReply *reply;
    int code = VERB_USAGE;
    if (!output_parse(config->connect.output, &format))
        return VERB_USAGE;
    struct connect *connect = connect_open(&config->connect, &code);
    if (!connect)
        return code;
    struct asking asking = {.config = config,
                            .connect = connect,
                            .after_step = config->after_step,
                            .names = argv + 1,
                            .names_count = (size_t)argc - 1};
    code = job_arg_find(connect, argv[0], true, &asking.job);
    if (code == VERB_OK && config->follow) {
        code = follow(&asking, format);
    } else if (code == VERB_OK && (code = ask(&asking, &reply)) == VERB_OK) {
        if (reply->n_series > 0 || format != OUTPUT_TABLE)
            print(config, format, reply);
        if (reply->n_series == 0)
            code = say_empty(&asking);
        if (reply->n_series == 0 && code == VERB_OK && format == OUTPUT_TABLE)
            code = say_none(&asking);
        protobuf_c_message_free_unpacked(&reply->base, NULL);
    }
    connect_close(connect);
    return code;
}

const struct verb cmd_metrics = {
    .name = "metrics",
    .args = "JOB [NAME...]",
    .summary = "Series that workers reported: a summary, every point, or drawn.",
    .examples = "  rondoctl metrics 7\n"
                "  rondoctl metrics charlm loss --plot\n"
                "  rondoctl metrics 7 loss lr --points --after-step 1000\n"
                "  rondoctl metrics 7 loss -f\n",
    .rows = rows,
    .config_size = sizeof(struct config),
    .operands_min = 1,
    .operands_max = 100,
    .run = run};
