/* serve_fsck.c - Fsck: rows, vaults and agents compared, and repaired. Here: the life of a run. */
#include "daemon/serve_fsck.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

#define DIFFERENCES_MAX 100000u
#define GONE_MAX        64u

static void destroy(struct serve_fsck *fsck)
{
    serve_fsck_view_fini(fsck);
    serve_fsck_look_fini(fsck);
    for (size_t i = 0; i < fsck->differences_count; i++)
        pb__difference__free_unpacked(fsck->differences[i], NULL);
    mem_free(fsck->differences);
    if (fsck->manifest)
        pb__checkpoint__free_unpacked(fsck->manifest, NULL);
    pb__fsck_request__free_unpacked(fsck->request, NULL);
    loop_timer_destroy(fsck->timer);
    list_remove(&fsck->node);
    mem_free(fsck);
}

/* The last word of whoever calls it: the run may be gone afterwards. */
static void end(struct serve_fsck *fsck, enum status st, const char *text)
{
    bool first = !fsck->over;

    fsck->over = true;
    serve_fsck_look_end(fsck);
    if (first && fsck->call)
        rpc_call_end(fsck->call, st, text);
    if (!fsck->call && !fsck->waiting)
        destroy(fsck);
}

struct serve_fsck *serve_fsck_now(const struct serve *serve)
{
    LIST_EACH((struct list *)(uintptr_t)&serve->fscks, item)
    {
        struct serve_fsck *fsck = LIST_ITEM(item, struct serve_fsck, node);
        if (!fsck->over)
            return fsck;
    }
    return NULL;
}

/* The store is gone, and its answers with it. */
void serve_fsck_fini(struct serve *serve)
{
    LIST_EACH(&serve->fscks, item)
    destroy(LIST_ITEM(item, struct serve_fsck, node));
}

void serve_fsck_fail(struct serve_fsck *fsck, enum status st, const char *text)
{
    end(fsck, st, text);
}

void serve_fsck_progress(struct serve_fsck *fsck, const char *text)
{
    Pb__FsckReply reply = PB__FSCK_REPLY__INIT;
    Pb__FsckProgress progress = PB__FSCK_PROGRESS__INIT;

    if (fsck->over || !fsck->call)
        return;
    progress.text = (char *)(uintptr_t)text;
    progress.has_directories = progress.has_bytes = true;
    for (size_t i = 0; i < fsck->targets_count; i++)
        progress.directories += fsck->targets[i].count;
    progress.bytes = fsck->read_bytes + fsck->read_now;
    reply.progress = &progress;
    rpc_call_send(fsck->call, &reply.base);
}

/* --- the stages */

static void next(struct serve_fsck *fsck);

void serve_fsck_viewed(struct serve_fsck *fsck)
{
    if (!fsck->call || fsck->over)
        end(fsck, STATUS_CANCELLED, "");
    else
        serve_fsck_look_begin(fsck);
}

void serve_fsck_looked(struct serve_fsck *fsck)
{
    serve_fsck_view_jobs(fsck);
}

static void keep_difference(void *arg, const Pb__Difference *difference)
{
    struct serve_fsck *fsck = arg;

    if (fsck->differences_count >= DIFFERENCES_MAX)
        return;
    if ((fsck->differences_count & (fsck->differences_count - 1)) == 0)
        fsck->differences =
            mem_resize(fsck->differences, fsck->differences_count ? 2 * fsck->differences_count : 1,
                       sizeof(void *));
    fsck->differences[fsck->differences_count++] =
        (Pb__Difference *)message_copy(&difference->base);
}

void serve_fsck_jobs_known(struct serve_fsck *fsck)
{
    if (!fsck->call || fsck->over) {
        end(fsck, STATUS_CANCELLED, "");
        return;
    }
    serve_fsck_view_compare(fsck, keep_difference);
    next(fsck);
}

static bool send_difference(struct serve_fsck *fsck, Pb__Difference *difference)
{
    Pb__FsckReply reply = PB__FSCK_REPLY__INIT;

    reply.difference = difference;
    return rpc_call_send(fsck->call, &reply.base) <= SERVE_QUEUE_BYTES;
}

static void finish(struct serve_fsck *fsck)
{
    Pb__FsckReply reply = PB__FSCK_REPLY__INIT;
    Pb__FsckSummary *summary = &fsck->summary;

    summary->has_checkpoints = summary->has_directories = summary->has_bytes = true;
    summary->has_nodes = summary->has_differences = summary->has_repaired = summary->has_left =
        summary->has_changing = summary->has_set_aside = true;
    summary->bytes = fsck->read_bytes;
    summary->left = summary->differences - summary->repaired;
    reply.summary = summary;
    log_info("fsck", log_str("actor", fsck->actor), log_int("repair", fsck->request->repair),
             log_int("checkpoints", (int64_t)summary->checkpoints),
             log_int("differences", summary->differences), log_int("left", summary->left));
    rpc_call_send(fsck->call, &reply.base);
    end(fsck, STATUS_OK, "");
}

/* The differences one after the other, as fast as they are repaired and read. */
static void next(struct serve_fsck *fsck)
{
    bool room = true;

    while (room && fsck->call && !fsck->over && fsck->next < fsck->differences_count) {
        Pb__Difference *difference = fsck->differences[fsck->next];
        if (fsck->request->repair && difference->outcome == PB__DIFFERENCE__OUTCOME__FOUND) {
            serve_fsck_repair_begin(fsck, difference);
            return;
        }
        room = send_difference(fsck, difference);
        fsck->next++;
    }
    if (!fsck->call || fsck->over)
        end(fsck, STATUS_CANCELLED, "");
    else if (fsck->next == fsck->differences_count)
        finish(fsck);
}

void serve_fsck_repaired(struct serve_fsck *fsck, enum status st, const char *text)
{
    Pb__Difference *difference = fsck->differences[fsck->next];

    difference->outcome =
        st == STATUS_OK ? PB__DIFFERENCE__OUTCOME__REPAIRED : PB__DIFFERENCE__OUTCOME__LEFT;
    fsck->summary.repaired += st == STATUS_OK;
    if (st != STATUS_OK) {
        char *note = mem_strdup(text); /* it may be the note itself */
        mem_free(difference->note);
        difference->note = note;
    }
    next(fsck);
}

/* --- the call */

static void serve_fsck_drained(void *arg, struct rpc_call *call)
{
    struct serve_fsck *fsck = arg;

    (void)call;
    if (fsck->differences_count && !fsck->waiting && fsck->asking == SERVE_FSCK_IDLE && !fsck->over)
        next(fsck);
}

static void serve_fsck_closed(void *arg, struct rpc_call *call)
{
    struct serve_fsck *fsck = arg;

    (void)call;
    fsck->call = NULL;
    end(fsck, STATUS_CANCELLED, "");
}

static bool is_name(const char *text)
{
    return !text || (strlen(text) <= 253 && text_is_utf8(text, strlen(text)));
}

static bool is_checked(struct rpc_call *call, const Pb__FsckRequest *request)
{
    bool good = request->n_gone_vaults <= GONE_MAX && is_name(request->project);

    for (size_t i = 0; good && i < request->n_gone_vaults; i++)
        good = is_name(request->gone_vaults[i]);
    if (!serve_reply_request_id_ok(request->request_id))
        rpc_call_end(call, STATUS_INVALID,
                     "request_id: 8 to 64 characters of A-Z a-z 0-9 . : _ -, new for each run");
    else if (!good)
        rpc_call_end(call, STATUS_INVALID, "project and gone_vaults: names, 64 at most");
    else
        return true;
    return false;
}

void serve_fsck(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct serve *serve = arg;
    const Pb__FsckRequest *request = (const Pb__FsckRequest *)(const void *)message;

    if (!is_checked(call, request))
        return;
    if (serve_fsck_now(serve)) {
        rpc_call_end(call, STATUS_PRECONDITION, "another fsck is under way: wait for its end");
        return;
    }
    struct serve_fsck *fsck = NEW(struct serve_fsck);
    fsck->serve = serve;
    fsck->call = call;
    fsck->request = (Pb__FsckRequest *)message_copy(message);
    identity_text(rpc_call_identity(call), fsck->actor, sizeof(fsck->actor));
    pb__fsck_summary__init(&fsck->summary);
    list_add_last(&serve->fscks, &fsck->node);
    rpc_call_on_closed(call, serve_fsck_closed, fsck);
    rpc_call_on_drained(call, serve_fsck_drained, fsck);
    serve_fsck_view_begin(fsck);
}
