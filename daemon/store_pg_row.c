#include "daemon/store_pg_row.h"
#include "base/map.h"
#include "proto/text/text_format.h"
#include <assert.h>
#include <string.h>

static const char *name_of(const ProtobufCEnumDescriptor *type, bool has, int value)
{
    return has ? enum_name(type, value) : NULL;
}

static void add_packed(struct store_pg_array *array, const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    SCOPED(mem_free) void *bytes = mem_alloc(len + 1);

    protobuf_c_message_pack(message, bytes);
    store_pg_array_bytes(array, true, bytes, len);
}

static void add_reason(struct store_pg_array *array, const Pb__Reason *reason)
{
    store_pg_array_text(
        array, reason ? name_of(&pb__reason__code__descriptor, reason->has_code, (int)reason->code)
                      : NULL);
    store_pg_array_text(array, reason ? reason->text : NULL);
}

static void encode_project(struct store_pg_array *array, const Pb__ProjectRow *project)
{
    store_pg_array_text(array, project->name);
    store_pg_array_text(array, project->user);
    store_pg_array_time(array, project->has_created_us, project->created_us);
    add_packed(array, &project->base);
    store_pg_array_row_end(array);
}

static bool is_ended(Pb__Job__State state)
{
    return state == PB__JOB__STATE__SUCCEEDED || state == PB__JOB__STATE__FAILED ||
           state == PB__JOB__STATE__CANCELLED;
}

static void add_job_state(struct store_pg_array *array, const Pb__Job *job)
{
    store_pg_array_text(array, enum_name(&pb__job__state__descriptor, (int)job->state));
    store_pg_array_bool(array, is_ended(job->state));
    add_reason(array, job->reason);
}

static void add_job_counts(struct store_pg_array *array, const Pb__Job *job)
{
    store_pg_array_i64(array, true, (int64_t)job->version);
    store_pg_array_i64(array, true, job->attempt);
    store_pg_array_i64(array, job->has_restarts_used, job->restarts_used);
    store_pg_array_i64(array, job->has_step, job->step);
    store_pg_array_i64(array, job->has_samples, job->samples);
    store_pg_array_i64(array, job->has_last_checkpoint, job->last_checkpoint);
}

static void add_job_packed(struct store_pg_array *array, const Pb__Job *job)
{
    Pb__Job bare = *job;

    bare.spec = NULL;
    add_packed(array, &bare.base);
}

/* What is known of the table already goes without its spec, and an update leaves the stored one
 * alone; a trigger refuses to insert a job without one. */
static void add_job_spec(struct store_pg_array *array, const Pb__JobSpec *spec)
{
    struct text json;

    if (!spec) {
        store_pg_array_bytes(array, true, "", 0);
        store_pg_array_text(array, "{}");
        return;
    }
    text_init(&json, 0);
    text_format_json(&spec->base, TEXT_FORMAT_COMPACT, &json);
    add_packed(array, &spec->base);
    store_pg_array_text(array, json.full || json.len == 0 ? "{}" : text_get(&json));
    text_fini(&json);
}

static void encode_job(struct store_pg_array *array, const Pb__Job *job, const Pb__JobSpec *spec)
{
    store_pg_array_i64(array, true, job->id);
    store_pg_array_text(array, spec ? spec->name : NULL);
    store_pg_array_text(array, spec ? spec->project : NULL);
    add_job_state(array, job);
    store_pg_array_i64(array, spec, spec ? spec->priority : 0);
    add_job_counts(array, job);
    store_pg_array_text(array, job->submitter);
    store_pg_array_time(array, job->has_submitted_us, job->submitted_us);
    store_pg_array_time(array, job->has_started_us, job->started_us);
    store_pg_array_time(array, job->has_ended_us, job->ended_us);
    add_job_packed(array, job);
    add_job_spec(array, spec);
    store_pg_array_row_end(array);
}

static void add_nodes(struct store_pg_array *array, const Pb__Attempt *attempt)
{
    struct text nodes;

    text_init(&nodes, 0);
    for (size_t i = 0; i < attempt->n_places; i++) {
        const char *node = attempt->places[i]->node;
        bool seen = !node;
        for (size_t k = i; k-- > 0 && i - k <= 64 && !seen;) /* neighbours share nodes */
            seen = attempt->places[k]->node && strcmp(attempt->places[k]->node, node) == 0;
        if (!seen)
            text_addf(&nodes, "%s%s", nodes.len ? "," : "", node);
    }
    store_pg_array_text(array, text_get(&nodes));
    text_fini(&nodes);
}

static void encode_attempt(struct store_pg_array *array, const Pb__Attempt *attempt)
{
    store_pg_array_i64(array, true, attempt->job);
    store_pg_array_i64(array, true, attempt->number);
    store_pg_array_i64(array, true, (int64_t)attempt->n_places);
    add_nodes(array, attempt);
    store_pg_array_i64(array, attempt->has_resume_checkpoint, attempt->resume_checkpoint);
    add_reason(array, attempt->end);
    store_pg_array_time(array, attempt->has_placed_us, attempt->placed_us);
    store_pg_array_time(array, attempt->has_running_us, attempt->running_us);
    store_pg_array_time(array, attempt->has_ended_us, attempt->ended_us);
    add_packed(array, &attempt->base);
    store_pg_array_row_end(array);
}

static void encode_node(struct store_pg_array *array, const Pb__Node *node)
{
    const Pb__NodeInventory *has = node->inventory;

    store_pg_array_text(array, node->name);
    store_pg_array_text(array,
                        name_of(&pb__node__admin__descriptor, node->has_admin, (int)node->admin));
    store_pg_array_text(array,
                        name_of(&pb__node__seen__descriptor, node->has_seen, (int)node->seen));
    store_pg_array_text(array, node->note);
    store_pg_array_text(array, has ? has->address : NULL);
    store_pg_array_i64(array, has, has ? (int64_t)has->n_devices : 0);
    store_pg_array_i64(array, has && has->has_memory_mib, has ? (int64_t)has->memory_mib : 0);
    store_pg_array_text(array, node->boot_id);
    store_pg_array_time(array, node->has_joined_us, node->joined_us);
    store_pg_array_time(array, node->has_seen_us, node->seen_us);
    store_pg_array_i64(array, true, (int64_t)node->version);
    add_packed(array, &node->base);
    store_pg_array_row_end(array);
}

static void encode_checkpoint(struct store_pg_array *array, const Pb__Checkpoint *c)
{
    store_pg_array_i64(array, true, c->id);
    store_pg_array_i64(array, true, c->job);
    store_pg_array_i64(array, c->has_attempt, c->attempt);
    store_pg_array_i64(array, c->has_step, c->step);
    store_pg_array_i64(array, c->has_samples, c->samples);
    store_pg_array_text(array,
                        name_of(&pb__checkpoint__state__descriptor, c->has_state, (int)c->state));
    store_pg_array_text(array, c->reason);
    store_pg_array_text(array, c->vault);
    store_pg_array_text(array, c->path);
    store_pg_array_text(array, c->node);
    store_pg_array_i64(array, true, (int64_t)c->n_parts);
    store_pg_array_i64(array, c->has_parts_expected, c->parts_expected);
    store_pg_array_i64(array, c->has_bytes, (int64_t)c->bytes);
    store_pg_array_text(array, c->manifest_digest);
    store_pg_array_i64(array, c->has_world, c->world);
    store_pg_array_i64(array, c->has_parent, c->parent);
    store_pg_array_time(array, c->has_created_us, c->created_us);
    store_pg_array_time(array, c->has_committed_us, c->committed_us);
    store_pg_array_i64(array, true, (int64_t)c->version);
    add_packed(array, &c->base);
    store_pg_array_row_end(array);
}

static void encode_parts(struct store_pg_array *array, const Pb__Checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->n_parts; i++) {
        const Pb__CheckpointPart *part = checkpoint->parts[i];
        uint64_t bytes = 0;
        for (size_t k = 0; k < part->n_files; k++)
            bytes += part->files[k]->bytes;
        store_pg_array_i64(array, true, checkpoint->id);
        store_pg_array_text(array, part->role ? part->role : "");
        store_pg_array_i64(array, true, part->rank);
        store_pg_array_text(array, part->node);
        store_pg_array_i64(array, true, (int64_t)part->n_files);
        store_pg_array_i64(array, true, (int64_t)bytes);
        store_pg_array_i64(array, part->has_samples, part->samples);
        store_pg_array_row_end(array);
    }
}

static void encode_event(struct store_pg_array *array, const Pb__Event *event)
{
    store_pg_array_i64(array, true, event->seq);
    store_pg_array_time(array, event->has_at_us, event->at_us);
    store_pg_array_text(array, event->kind);
    store_pg_array_i64(array, event->has_job, event->job);
    store_pg_array_i64(array, event->has_attempt, event->attempt);
    store_pg_array_text(array, event->node);
    store_pg_array_text(array, event->from);
    store_pg_array_text(array, event->to);
    store_pg_array_text(array, event->reason);
    store_pg_array_text(array, event->text);
    store_pg_array_text(array, event->actor);
    store_pg_array_row_end(array);
}

static void encode_request(struct store_pg_array *array, const Pb__RequestRow *request)
{
    store_pg_array_text(array, request->id);
    store_pg_array_text(array, request->actor);
    store_pg_array_text(array, request->method);
    store_pg_array_time(array, request->has_at_us, request->at_us);
    store_pg_array_bytes(array, request->has_digest, request->digest.data, request->digest.len);
    store_pg_array_bytes(array, request->has_reply, request->reply.data, request->reply.len);
    store_pg_array_row_end(array);
}

static void encode_mark(struct store_pg_array *array, const Pb__MarkRow *mark)
{
    store_pg_array_text(array, mark->node);
    store_pg_array_text(array, mark->spool_id);
    store_pg_array_i64(array, true, (int64_t)mark->bulk_seq);
    store_pg_array_row_end(array);
}

static void encode_code(struct store_pg_array *array, const Pb__CodeRow *code)
{
    store_pg_array_text(array, code->digest);
    store_pg_array_time(array, code->has_at_us, code->at_us);
    store_pg_array_i64(array, true, (int64_t)code->data.len);
    store_pg_array_bytes(array, true, code->data.data, code->data.len);
    store_pg_array_row_end(array);
}

/* Tables are written in this order, so that two writers can't wait for each other in a circle. */
static const enum store_statement row_order[] = {
    STORE_PROJECT_PUT,
    STORE_JOB_PUT,
    STORE_ATTEMPT_PUT,
    STORE_CHECKPOINT_PUT,
    STORE_NODE_PUT,
    STORE_EVENT_PUT,
    STORE_CHECKPOINT_PART_PUT,
    STORE_SHARD_COPY_PUT,
    STORE_REQUEST_PUT,
    STORE_CODE_PUT,
    STORE_MARK_PUT,
};

void store_pg_row_init(struct store_pg_row_set *set)
{
    memset(set, 0, sizeof(*set));
}

void store_pg_row_fini(struct store_pg_row_set *set)
{
    for (size_t i = 0; i < COUNT_OF(row_order); i++)
        store_pg_array_fini(&set->arrays[row_order[i]]);
}

static void row_add_job(struct store_pg_row_set *set, const Pb__Job *job, int64_t jobs_known)
{
    if (job->id > set->job_max)
        set->job_max = job->id;
    bool known = job->version > 1 && job->id <= jobs_known;
    encode_job(&set->arrays[STORE_JOB_PUT], job, known ? NULL : job->spec);
}

static void encode_copies(struct store_pg_array *array, const Pb__Checkpoint *checkpoint)
{
    bool deleted = checkpoint->state == PB__CHECKPOINT__STATE__DELETED;

    for (size_t i = 0; i < checkpoint->n_copies; i++) {
        const Pb__ShardCopy *copy = checkpoint->copies[i];
        store_pg_array_i64(array, true, checkpoint->id);
        store_pg_array_text(array, copy->role ? copy->role : "");
        store_pg_array_i64(array, true, copy->rank);
        store_pg_array_text(array, copy->node ? copy->node : "");
        store_pg_array_text(
            array, name_of(&pb__shard_copy__durability__descriptor, true, (int)copy->durability));
        store_pg_array_text(array, copy->vault);
        store_pg_array_i64(array, copy->has_bytes, (int64_t)copy->bytes);
        store_pg_array_time(array, copy->has_made_us, copy->made_us);
        store_pg_array_i64(array, true, copy->lost || deleted);
        store_pg_array_row_end(array);
    }
}

static void row_add_checkpoint(struct store_pg_row_set *set, const Pb__Checkpoint *checkpoint)
{
    encode_checkpoint(&set->arrays[STORE_CHECKPOINT_PUT], checkpoint);
    if (checkpoint->state == PB__CHECKPOINT__STATE__COMMITTED)
        encode_parts(&set->arrays[STORE_CHECKPOINT_PART_PUT], checkpoint);
    if (checkpoint->state != PB__CHECKPOINT__STATE__STAGED) /* grows part by part */
        encode_copies(&set->arrays[STORE_SHARD_COPY_PUT], checkpoint);
}

static void row_add(struct store_pg_row_set *set, const struct change *change, int64_t jobs_known)
{
    const void *row = change->row;

    switch (change->kind) {
    case CHANGE_JOB:
        row_add_job(set, row, jobs_known);
        break;
    case CHANGE_ATTEMPT:
        encode_attempt(&set->arrays[STORE_ATTEMPT_PUT], row);
        break;
    case CHANGE_NODE:
        encode_node(&set->arrays[STORE_NODE_PUT], row);
        break;
    case CHANGE_CHECKPOINT:
        row_add_checkpoint(set, row);
        break;
    case CHANGE_EVENT:
        encode_event(&set->arrays[STORE_EVENT_PUT], row);
        break;
    case CHANGE_REQUEST:
        encode_request(&set->arrays[STORE_REQUEST_PUT], row);
        break;
    case CHANGE_MARK:
        encode_mark(&set->arrays[STORE_MARK_PUT], row);
        break;
    case CHANGE_CODE:
        encode_code(&set->arrays[STORE_CODE_PUT], row);
        break;
    case CHANGE_PROJECT:
        encode_project(&set->arrays[STORE_PROJECT_PUT], row);
        break;
    case CHANGE_REPORTS:
    case CHANGE_KIND_COUNT:
        assert(false && "not a row of state");
    }
}

/* What a row is known by; NULL: rows of its kind are never written twice. Free it. */
static char *row_key(const struct change *change)
{
    const void *row = change->row;

    switch (change->kind) {
    case CHANGE_JOB:
        return mem_printf("j%lld", (long long)((const Pb__Job *)row)->id);
    case CHANGE_ATTEMPT:
        return mem_printf("a%lld/%u", (long long)((const Pb__Attempt *)row)->job,
                          ((const Pb__Attempt *)row)->number);
    case CHANGE_CHECKPOINT:
        return mem_printf("c%lld", (long long)((const Pb__Checkpoint *)row)->id);
    case CHANGE_NODE:
        return mem_printf("n%s", ((const Pb__Node *)row)->name);
    case CHANGE_MARK:
        return mem_printf("m%s", ((const Pb__MarkRow *)row)->node);
    case CHANGE_PROJECT:
        return mem_printf("p%s", ((const Pb__ProjectRow *)row)->name);
    default:
        return NULL;
    }
}

void store_pg_row_gather(struct store_pg_row_set *set, const struct batch *batch,
                         int64_t jobs_known)
{
    struct map *latest = map_create();

    for (struct change *change = batch->first; change; change = change->next) {
        SCOPED_TEXT char *key = row_key(change);
        if (key)
            map_put_text(latest, key, change);
    }
    for (const struct change *change = batch->first; change; change = change->next) {
        SCOPED_TEXT char *key = row_key(change);
        if (change->kind != CHANGE_REPORTS && (!key || map_get_text(latest, key) == change))
            row_add(set, change, jobs_known);
    }
    map_destroy(latest);
}

enum status store_pg_row_check(const struct store_pg_row_set *set, struct error *err)
{
    for (size_t i = 0; i < COUNT_OF(row_order); i++)
        if (set->arrays[row_order[i]].full)
            return error_set(err, STATUS_EXHAUSTED, "batch: too many bytes of one kind (%s)",
                             store_pg_statements[row_order[i]].name);
    return STATUS_OK;
}

void store_pg_row_send(struct store_pg_row_set *set, struct store_pg_link *link)
{
    for (size_t i = 0; i < COUNT_OF(row_order); i++)
        store_pg_array_send(&set->arrays[row_order[i]], link, row_order[i]);
}
