/* cmd_jobs.c - the list of jobs. Loop thread. */
#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/job_arg.h"
#include "ctl/job_state.h"
#include "ctl/output.h"
#include <inttypes.h>
#include <string.h>

struct config {
    struct connect_flags connect;
    char *project, *name;
    struct option_list state;
    uint32_t limit;
    bool active;
};
#define AT(member) offsetof(struct config, member)

enum { STATES_MAX = 16, IDS_MAX = 1000 };

static const struct option rows[] = {
    CONNECT_ROWS,
    {"project", OPT_TEXT, AT(project), NULL, 0, 0, "Only jobs of this project."},
    {"name", OPT_TEXT, AT(name), NULL, 0, 0, "Only jobs of exactly this name."},
    {"state", OPT_LIST, AT(state), NULL, 0, 0, "Only jobs in this state; repeat for several."},
    {"active", OPT_BOOL, AT(active), "false", 0, 0, "Only jobs that have not ended."},
    {"limit", OPT_U32, AT(limit), "50", 1, 5000, "At most this many, the newest."},
    {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

static const struct table_column columns[] = {
    {"ID", TABLE_RIGHT},      {"NAME", TABLE_SHRINK},    {"PROJECT", TABLE_SHRINK},
    {"STATE", TABLE_STATE},   {"REASON", TABLE_SHRINK},  {"STEP", TABLE_RIGHT},
    {"WORKERS", TABLE_RIGHT}, {"RESTARTS", TABLE_RIGHT}, {"AGE", TABLE_RIGHT}};

static void add_job(struct table *table, const Pb__Job *job)
{
    char age[32];
    output_age(job->submitted_us, age, sizeof age);
    table_addf(table, "%" PRId64, job->id);
    table_add(table, job_state_job_name(job));
    table_add(table, job->spec ? job->spec->project : "");
    table_add(table, job_state_name(job->state));
    table_add(table, job_state_reason(job));
    table_addf(table, "%" PRId64, job->step);
    table_addf(table, "%" PRIu64, job_state_workers(job));
    table_addf(table, "%u", job->restarts_used);
    table_add(table, age);
}

static void print(const Pb__ListJobsReply *reply)
{
    struct table *table = table_create(columns, COUNT_OF(columns));
    for (size_t i = 0; i < reply->n_jobs; i++)
        add_job(table, reply->jobs[i]);
    output_table_take(table);
    if (reply->age_ms > 0)
        output_error("the daemon's database is away: this is %lld s old",
                     (long long)reply->age_ms / 1000);
}

/* Operands are ids, or one name or the start of one. */
static bool fill_ids(int argc, char **argv, int64_t *ids, Pb__JobFilter *filter)
{
    for (int i = 0; i < argc && i < IDS_MAX; i++) {
        if (text_to_i64(argv[i], 1, INT64_MAX, &ids[filter->n_ids])) {
            filter->n_ids++;
        } else if (argc == 1 && !filter->name) {
            filter->name = argv[i];
        } else {
            output_error("'%s' is no id; one name, or several ids", argv[i]);
            return false;
        }
    }
    filter->ids = ids;
    return true;
}

static bool fill_filter(const struct config *config, int argc, char **argv, int64_t *ids,
                        Pb__Job__State *states, Pb__JobFilter *filter)
{
    filter->project = *config->project ? config->project : NULL;
    filter->name = *config->name ? config->name : NULL;
    filter->has_active = filter->active = config->active;
    filter->states = states;
    for (size_t i = 0; i < config->state.count && i < STATES_MAX; i++)
        if (!job_state_parse(config->state.items[i], &states[filter->n_states++]))
            return false;
    return fill_ids(argc, argv, ids, filter);
}

static int ask(struct connect *connect, Pb__ListJobsRequest *request, Pb__ListJobsReply **out)
{
    return connect_ask(connect, "ListJobs", &request->base, (ProtobufCMessage **)out);
}

/* Nothing has that name: as much of one as `show` takes will do. *reply is replaced. */
static int by_start(struct connect *connect, Pb__ListJobsRequest *request,
                    Pb__ListJobsReply **reply)
{
    Pb__JobFilter one = PB__JOB_FILTER__INIT, *filter = request->filter;
    Pb__ListJobsReply *found;
    int64_t id;
    int code = job_arg_find(connect, filter->name, true, &id);
    if (code != VERB_OK)
        return code;
    one.ids = &id;
    one.n_ids = 1;
    request->filter = &one;
    code = ask(connect, request, &found);
    request->filter = filter;
    if (code != VERB_OK)
        return code;
    if (found->n_jobs > 0 && strcmp(job_state_job_name(found->jobs[0]), filter->name) != 0) {
        filter->name = (char *)(uintptr_t)job_state_job_name(found->jobs[0]);
        protobuf_c_message_free_unpacked(&(*reply)->base, NULL);
        *reply = NULL;
        code = ask(connect, request, reply);
    }
    protobuf_c_message_free_unpacked(&found->base, NULL);
    return code;
}

/* Of the ids asked for, which are not there at all? */
static int check_ids(struct connect *connect, const Pb__JobFilter *filter,
                     const Pb__ListJobsReply *reply)
{
    int worst = VERB_OK;
    for (size_t i = 0; i < filter->n_ids && worst != VERB_UNREACHED; i++) {
        bool there = false;
        for (size_t k = 0; k < reply->n_jobs && !there; k++)
            there = reply->jobs[k]->id == filter->ids[i];
        int code = there ? VERB_OK : job_arg_check(connect, filter->ids[i]);
        worst = code > worst ? code : worst;
    }
    return worst;
}

/* word: the operand that is a name; NULL: none. */
static int list(struct connect *connect, Pb__ListJobsRequest *request, const char *word,
                enum output_format format)
{
    Pb__ListJobsReply *reply = NULL;
    int code = ask(connect, request, &reply);
    if (code != VERB_OK)
        return code;
    if (reply->n_jobs == 0 && word)
        code = by_start(connect, request, &reply);
    if (code == VERB_OK && format == OUTPUT_TABLE)
        print(reply);
    else if (code == VERB_OK)
        output_message(format, &reply->base);
    if (code == VERB_OK)
        code = check_ids(connect, request->filter, reply);
    if (reply)
        protobuf_c_message_free_unpacked(&reply->base, NULL);
    return code;
}

static int run(const void *arg, int argc, char **argv)
{
    const struct config *config = arg;
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    Pb__Job__State states[STATES_MAX];
    int64_t ids[IDS_MAX];
    enum output_format format;
    int code = VERB_USAGE;
    if (!output_parse(config->connect.output, &format) ||
        !fill_filter(config, argc, argv, ids, states, &filter))
        return VERB_USAGE;
    struct connect *connect = connect_open(&config->connect, &code);
    if (!connect)
        return code;
    request.filter = &filter;
    request.has_limit = 1;
    request.limit = config->limit;
    request.has_brief = request.brief = 1;
    code = list(connect, &request, filter.name && !*config->name ? filter.name : NULL, format);
    connect_close(connect);
    return code;
}

const struct verb cmd_jobs = {.name = "jobs",
                              .args = "[ID...|NAME]",
                              .summary = "List jobs, newest first.",
                              .examples = "  rondoctl jobs --active\n"
                                          "  rondoctl jobs --state FAILED --project nlp -n 10\n"
                                          "  rondoctl jobs -o json\n",
                              .rows = rows,
                              .config_size = sizeof(struct config),
                              .operands_min = 0,
                              .operands_max = IDS_MAX,
                              .run = run};
