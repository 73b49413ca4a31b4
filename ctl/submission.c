#include "ctl/submission.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "ctl/code_upload.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include "proto/text/job_file.h"
#include "proto/text/text_yaml.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CHUNK_JOBS = 250,
    CHUNK_BYTES = 4 << 20,
    PACKS_BYTES_MAX = 512 << 20,
    WARN_JOBS = 8, /* of more, `rondoctl show` tells */
    WARN_MS = 2000
};

struct entry {
    const char *file;
    Pb__JobSpec *spec;
    char id[CONNECT_ID_SIZE];
    bool done;
};
struct submission {
    struct entry *entries;
    size_t count;
    struct map *packs; /* by directory: struct pack */
    size_t packs_bytes;
};

/* --- loading */

static enum status read_stdin(char **out, size_t *len)
{
    struct text all;
    char buffer[65536];
    text_init(&all, TEXT_YAML_BYTES_MAX + 1);
    for (size_t n; !all.full && (n = fread(buffer, 1, sizeof buffer, stdin)) > 0;)
        text_add_bytes(&all, buffer, n);
    bool good = !ferror(stdin) && !all.full;
    *len = all.len;
    *out = text_take(&all);
    return good ? STATUS_OK : STATUS_INVALID;
}

static enum status read_yaml(const char *file, char **yaml, size_t *len, struct text *problems)
{
    struct error err;
    enum status st;
    if (strcmp(file, "-") == 0) {
        st = read_stdin(yaml, len);
        if (st != STATUS_OK)
            text_addf(problems, "<stdin>: cannot be read, or is larger than 1 MiB\n");
        return st;
    }
    st = file_read(file, TEXT_YAML_BYTES_MAX, yaml, len, &err);
    if (st != STATUS_OK)
        text_addf(problems, "%s: %s\n", file, err.text);
    return st;
}

/* code.path is relative to the file that names it. */
static char *code_directory(const char *file, const char *path)
{
    const char *slash = strrchr(file, '/');
    if (*path == '/' || !slash)
        return mem_strdup(path);
    return mem_printf("%.*s/%s", (int)(slash - file), file, path);
}

static struct pack *find_pack(struct submission *submission, const char *directory,
                              struct error *err)
{
    struct pack *pack = map_get_text(submission->packs, directory);
    if (pack)
        return pack;
    pack = NEW(struct pack);
    enum status st = pack_directory(directory, pack, err);
    submission->packs_bytes += pack->tar.len;
    if (st == STATUS_OK && submission->packs_bytes > PACKS_BYTES_MAX)
        st = error_set(err, STATUS_EXHAUSTED, "more than %d MiB of code in one submit",
                       PACKS_BYTES_MAX >> 20);
    if (st != STATUS_OK) {
        pack_fini(pack);
        mem_free(pack);
        return NULL;
    }
    map_put_text(submission->packs, directory, pack);
    return pack;
}

struct packing {
    struct submission *submission;
    const char *file;
};

static enum status pack_code(void *arg, Pb__Code *code, struct error *err)
{
    const struct packing *packing = arg;
    SCOPED_TEXT char *directory = code_directory(packing->file, code->path);
    const struct pack *pack = find_pack(packing->submission, directory, err);
    if (!pack)
        return err->code;
    mem_free(code->digest);
    code->digest = mem_strdup(pack->digest);
    return STATUS_OK;
}

static bool load_entry(struct submission *submission, struct entry *entry,
                       const struct submission_options *options, struct text *problems)
{
    SCOPED_TEXT char *yaml = NULL;
    size_t len;
    if (read_yaml(entry->file, &yaml, &len, problems) != STATUS_OK)
        return false;
    struct packing packing = {submission, entry->file};
    struct job_file file = {.name = strcmp(entry->file, "-") == 0 ? "<stdin>" : entry->file,
                            .yaml = yaml,
                            .len = len,
                            .sets = options->sets,
                            .sets_count = options->sets_count,
                            .pack = pack_code,
                            .pack_arg = &packing};
    if (job_file_parse(&file, &entry->spec, problems) != STATUS_OK)
        return false;
    if (options->hold)
        entry->spec->has_hold = entry->spec->hold = 1;
    return true;
}

struct submission *submission_load(char *const *files, size_t count,
                                   const struct submission_options *options, int *exit_code)
{
    struct submission *submission = NEW(struct submission);
    struct text problems;
    bool good = true;
    text_init(&problems, 0);
    submission->entries = mem_array(count, sizeof(struct entry));
    submission->count = count;
    submission->packs = map_create();
    for (size_t i = 0; i < count; i++) {
        submission->entries[i].file = files[i];
        good = load_entry(submission, &submission->entries[i], options, &problems) && good;
    }
    fputs(text_get(&problems), stderr);
    text_fini(&problems);
    if (good)
        return submission;
    output_error("nothing was submitted; mend the above and try again");
    *exit_code = VERB_USAGE;
    submission_destroy(submission);
    return NULL;
}

void submission_destroy(struct submission *submission)
{
    if (!submission)
        return;
    struct pack *pack;
    for (size_t at = 0; (pack = map_next(submission->packs, &at)) != NULL;) {
        pack_fini(pack);
        mem_free(pack);
    }
    for (size_t i = 0; i < submission->count; i++)
        if (submission->entries[i].spec)
            protobuf_c_message_free_unpacked(&submission->entries[i].spec->base, NULL);
    map_destroy(submission->packs);
    mem_free(submission->entries);
    mem_free(submission);
}

size_t submission_count(const struct submission *submission)
{
    return submission->count;
}

const Pb__JobSpec *submission_spec(const struct submission *submission, size_t i)
{
    return submission->entries[i].spec;
}

const char *submission_file(const struct submission *submission, size_t i)
{
    return submission->entries[i].file;
}

/* --- sending */

static int upload_all(struct submission *submission, struct connect *connect)
{
    struct error err = {0};
    const struct pack *pack;
    for (size_t at = 0; (pack = map_next(submission->packs, &at)) != NULL;) {
        enum status st = code_upload(connect, pack, &err);
        if (st != STATUS_OK)
            return connect_fail(connect, st, err.text);
    }
    return VERB_OK;
}

static void fill_request(const struct entry *entry, bool dry_run, Pb__SubmitRequest *request)
{
    pb__submit_request__init(request);
    request->request_id = (char *)(uintptr_t)entry->id;
    request->spec = entry->spec;
    request->has_dry_run = request->dry_run = dry_run;
}

/* Entries from `first` that are not done, as many as fit a message; *next is behind the last. */
static size_t gather(struct submission *submission, size_t first, Pb__SubmitRequest *requests,
                     Pb__SubmitRequest **list, size_t *indices, size_t *next)
{
    size_t count = 0, bytes = 0, i = first;
    for (; i < submission->count && count < CHUNK_JOBS; i++) {
        const struct entry *entry = &submission->entries[i];
        size_t size = protobuf_c_message_get_packed_size(&entry->spec->base);
        if (entry->done)
            continue;
        if (count > 0 && bytes + size > CHUNK_BYTES)
            break;
        bytes += size;
        fill_request(entry, false, &requests[count]);
        list[count] = &requests[count];
        indices[count++] = i;
    }
    *next = i;
    return count;
}

static int worse(int a, int b)
{
    return a > b ? a : b;
}

/* Takes a result over. False: the daemon could not store it just now. */
static bool keep_result(struct submission *submission, size_t i, const Pb__SubmitResult *got,
                        Pb__SubmitResult *out, bool last_try)
{
    struct entry *entry = &submission->entries[i];
    if (connect_may_retry((enum status)got->status) && !last_try)
        return false;
    entry->done = true;
    out->has_job = got->has_job;
    out->job = got->job;
    out->has_status = 1;
    out->status = got->status;
    mem_free(out->error);
    out->error = got->error ? mem_strdup(got->error) : NULL;
    return true;
}

/* One message. Returns the exit code of the call; *again when some could not be stored now. */
static int send_chunk(struct submission *submission, struct connect *connect, size_t first,
                      size_t *next, bool last_try, bool *again, Pb__SubmitManyReply *reply)
{
    Pb__SubmitRequest *requests = mem_array(CHUNK_JOBS, sizeof *requests);
    Pb__SubmitRequest *list[CHUNK_JOBS];
    Pb__SubmitManyRequest many = PB__SUBMIT_MANY_REQUEST__INIT;
    Pb__SubmitManyReply *got = NULL;
    size_t indices[CHUNK_JOBS];
    many.requests = list;
    many.n_requests = gather(submission, first, requests, list, indices, next);
    int code = many.n_requests
                   ? connect_ask(connect, "SubmitMany", &many.base, (ProtobufCMessage **)&got)
                   : VERB_OK;
    if (code == VERB_OK && got && got->n_results != many.n_requests) {
        output_error("the daemon answered %zu of %zu jobs", got->n_results, many.n_requests);
        code = VERB_BROKEN;
    }
    for (size_t i = 0; code == VERB_OK && got && i < many.n_requests; i++)
        if (!keep_result(submission, indices[i], got->results[i], reply->results[indices[i]],
                         last_try))
            *again = true;
    if (got)
        protobuf_c_message_free_unpacked(&got->base, NULL);
    mem_free(requests);
    return code;
}

static int report(struct submission *submission, const Pb__SubmitManyReply *reply)
{
    int code = VERB_OK;
    for (size_t i = 0; i < submission->count; i++) {
        const Pb__SubmitResult *result = reply->results[i];
        if (result->status == STATUS_OK)
            continue;
        output_error("%s: %s", submission->entries[i].file,
                     result->error && *result->error ? result->error
                                                     : status_name((enum status)result->status));
        code = worse(code, connect_exit_code((enum status)result->status));
    }
    return code;
}

/* Ids for all, and a result for each: not reached so far. */
static void begin(struct submission *submission, struct connect *connect,
                  Pb__SubmitManyReply *reply)
{
    reply->results = mem_array(submission->count, sizeof(Pb__SubmitResult *));
    reply->n_results = submission->count;
    for (size_t i = 0; i < submission->count; i++) {
        connect_request_id(connect, submission->entries[i].id);
        reply->results[i] = NEW(Pb__SubmitResult);
        pb__submit_result__init(reply->results[i]);
        reply->results[i]->has_status = 1;
        reply->results[i]->status = STATUS_UNAVAILABLE;
    }
}

int submission_send(struct submission *submission, struct connect *connect,
                    Pb__SubmitManyReply *reply)
{
    int code = upload_all(submission, connect);
    int64_t end = connect_now_ms(connect) + connect_timeout_ms(connect);
    bool again = true;
    begin(submission, connect, reply);
    for (unsigned tries = 0; code == VERB_OK && again; tries++) {
        again = false;
        bool last_try = connect_now_ms(connect) >= end;
        for (size_t at = 0; at < submission->count && code == VERB_OK;)
            code = send_chunk(submission, connect, at, &at, last_try, &again, reply);
        if (again)
            connect_pause(tries);
    }
    return code == VERB_OK ? report(submission, reply) : code;
}

/* "fits nowhere: ..." and the like. */
static void say_note(const struct entry *entry, const ProtobufCMessage *message)
{
    const Pb__SubmitReply *reply = (const Pb__SubmitReply *)message;
    if (reply->note && strncmp(reply->note, "fits ", 5) == 0)
        output_error("%s: %s", entry->file, reply->note);
}

int submission_try(struct submission *submission, struct connect *connect, Pb__SubmitManyReply *out)
{
    int code = VERB_OK;
    begin(submission, connect, out);
    for (size_t i = 0; i < submission->count && code != VERB_UNREACHED; i++) {
        Pb__SubmitRequest request;
        ProtobufCMessage *reply;
        struct error err = {0};
        fill_request(&submission->entries[i], true, &request);
        enum status st = connect_call(connect, "Submit", &request.base, &reply, &err);
        out->results[i]->status = (int32_t)st;
        if (st == STATUS_OK) {
            say_note(&submission->entries[i], reply);
            protobuf_c_message_free_unpacked(reply, NULL);
            continue;
        }
        out->results[i]->error = mem_strdup(err.text);
        SCOPED_TEXT char *text = mem_printf("%s: %s", submission->entries[i].file, err.text);
        code = worse(code, connect_fail(connect, st, text));
    }
    return code;
}

void submission_warn(struct submission *submission, struct connect *connect)
{
    for (size_t i = 0; submission->count <= WARN_JOBS && i < submission->count; i++) {
        const struct entry *entry = &submission->entries[i];
        struct entry again = *entry;
        Pb__SubmitRequest request;
        ProtobufCMessage *reply;
        struct error err = {0};
        if (!entry->done)
            continue;
        connect_request_id(connect, again.id);
        fill_request(&again, true, &request);
        if (rpc_client_call_wait(connect_client(connect), &pb__control__descriptor, "Submit",
                                 &request.base, WARN_MS, &reply, &err) != STATUS_OK)
            continue; /* it is only a hint */
        say_note(entry, reply);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
}
