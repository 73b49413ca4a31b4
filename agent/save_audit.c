/* save_audit.c - committed checkpoints are read again, one after the other, a piece at a time: what
 * is bad becomes known before it is needed. See save.h. */
#include "agent/actual.h"
#include "agent/save_inner.h"
#include "base/log.h"
#include "checkpoint/vault_audit.h"
#include <stdlib.h>
#include <string.h>

#define PIECE_US 200000   /* a piece each so often */
#define RETRY_US 60000000 /* after what says nothing about the bytes */

struct save_audit {
    struct list node;
    int64_t checkpoint;
    char *vault_name, *path, *digest;
    bool own_parts, wanted;
    enum { AUDIT_WAITING, AUDIT_RUNNING, AUDIT_DONE } state;
    int64_t not_before_us;
    struct vault_audit *audit; /* between two pieces */
    Pb__PartDigest **parts;
    size_t parts_count;
    char *error;
    uint64_t sent_seq;
    Pb__ActualVerified message;
};
struct audit_op {
    struct saves *saves;
    int64_t checkpoint;
};

static void audit_destroy(struct save_audit *audit)
{
    for (size_t i = 0; i < audit->parts_count; i++)
        pb__part_digest__free_unpacked(audit->parts[i], NULL);
    mem_free(audit->parts);
    vault_audit_destroy(audit->audit);
    mem_free(audit->vault_name);
    mem_free(audit->path);
    mem_free(audit->digest);
    mem_free(audit->error);
    mem_free(audit);
}

void save_audit_destroy_all(struct saves *saves)
{
    LIST_EACH(&saves->audits, node)
    audit_destroy(LIST_ITEM(node, struct save_audit, node));
    loop_timer_destroy(saves->audit_timer);
}

static struct save_audit *find(struct saves *saves, int64_t checkpoint)
{
    LIST_EACH(&saves->audits, node)
    {
        struct save_audit *audit = LIST_ITEM(node, struct save_audit, node);
        if (audit->checkpoint == checkpoint)
            return audit;
    }
    return NULL;
}

/* --- a piece */

static void keep_parts(struct save_audit *self, const struct vault_audit *audit)
{
    const struct vault_audit_part *parts;
    size_t count = vault_audit_parts(audit, &parts);
    self->parts = mem_array(count + 1, sizeof(*self->parts));
    for (size_t i = 0; i < count; i++) {
        Pb__PartDigest *out = NEW(Pb__PartDigest);
        pb__part_digest__init(out);
        out->role = mem_strdup(parts[i].role);
        out->has_rank = true;
        out->rank = parts[i].rank;
        out->tree_digest = mem_strdup(parts[i].sha256);
        self->parts[self->parts_count++] = out;
    }
}

static void done(struct saves *saves, struct save_audit *self, const char *error)
{
    self->state = AUDIT_DONE;
    self->error = mem_strdup(error);
    if (error)
        log_error("save.damaged", log_int("checkpoint", self->checkpoint), log_str("err", error));
    else
        log_info("save.verified", log_int("checkpoint", self->checkpoint));
    actual_mark_outbox(saves->agent->actual);
}

static void save_audit_done(void *arg, enum status st, const struct error *err,
                            struct vault_job *job)
{
    struct audit_op *op = arg;
    struct saves *saves = op->saves;
    struct save_audit *self = find(saves, op->checkpoint);
    pending_destroy(op);
    if (!self) /* nobody wants it any more: the job takes it along */
        return;
    self->state = AUDIT_WAITING;
    if (st == STATUS_DATA_LOSS) {
        done(saves, self, err->text);
    } else if (st != STATUS_OK) {
        log_warn("save.verify", log_int("checkpoint", self->checkpoint), log_err(err));
        self->not_before_us = loop_now_us(saves->agent->loop) + RETRY_US;
    } else if (job->over) {
        keep_parts(self, job->audit);
        done(saves, self, NULL);
    } else {
        self->audit = job->audit;
        job->audit = NULL;
    }
}

static void piece(struct saves *saves, struct save_audit *self)
{
    char vault[1024];
    if (!saves_vault(saves, self->vault_name, vault, sizeof(vault))) {
        self->not_before_us = loop_now_us(saves->agent->loop) + RETRY_US;
        return;
    }
    struct vault_job *job = vault_job_create(VAULT_JOB_AUDIT, vault, self->path, NULL, 0);
    job->digest = mem_strdup(self->digest);
    job->node = self->own_parts ? mem_strdup(saves->agent->node) : NULL;
    job->audit = self->audit;
    self->audit = NULL;
    job->bytes_max = (saves->agent->config->verify_mib_s << 20) / (1000000 / PIECE_US);
    struct audit_op *op = PENDING(&saves->agent->pending, struct audit_op);
    *op = (struct audit_op){saves, self->checkpoint};
    self->state = AUDIT_RUNNING;
    vault_pool_run(saves->agent->options.vaults, job, save_audit_done, op);
}

/* One at a time, and none while a worker's save is being read or written. */
static void save_audit_tick(void *arg)
{
    struct saves *saves = arg;
    int64_t now = loop_now_us(saves->agent->loop);
    bool busy = false, waiting = false;
    LIST_EACH(&saves->saves, node)
    busy |= LIST_ITEM(node, struct save, node)->job != NULL;
    LIST_EACH(&saves->audits, node)
    busy |= LIST_ITEM(node, struct save_audit, node)->state == AUDIT_RUNNING;
    LIST_EACH(&saves->audits, node)
    {
        struct save_audit *self = LIST_ITEM(node, struct save_audit, node);
        waiting |= self->state != AUDIT_DONE;
        if (busy || self->state != AUDIT_WAITING || self->not_before_us > now)
            continue;
        piece(saves, self);
        busy = true;
    }
    if (waiting)
        loop_timer_set(saves->audit_timer, PIECE_US);
}

/* --- the daemon's wish */

static void want(struct saves *saves, const Pb__DesiredVerify *verify)
{
    struct save_audit *self = find(saves, verify->checkpoint);
    if (self) {
        self->wanted = true;
        return;
    }
    if (!verify->vault || !verify->path)
        return;
    self = NEW(struct save_audit);
    self->checkpoint = verify->checkpoint;
    self->vault_name = mem_strdup(verify->vault);
    self->path = mem_strdup(verify->path);
    self->digest = verify->manifest_digest && *verify->manifest_digest
                       ? mem_strdup(verify->manifest_digest)
                       : NULL;
    self->own_parts = verify->own_parts;
    self->wanted = true;
    list_add_last(&saves->audits, &self->node);
}

void save_audit_desired(struct saves *saves, const Pb__Desired *desired)
{
    LIST_EACH(&saves->audits, node)
    LIST_ITEM(node, struct save_audit, node)->wanted = false;
    for (size_t i = 0; saves->agent->config->verify_mib_s && i < desired->n_verifies; i++)
        want(saves, desired->verifies[i]);
    LIST_EACH(&saves->audits, at)
    {
        struct save_audit *self = LIST_ITEM(at, struct save_audit, node);
        if (self->wanted)
            continue;
        list_remove(at);
        audit_destroy(self);
    }
    if (list_is_empty(&saves->audits))
        return;
    if (!saves->audit_timer)
        saves->audit_timer = loop_timer_create(saves->agent->loop, save_audit_tick, saves);
    loop_timer_set(saves->audit_timer, PIECE_US);
}

/* --- reports */

void save_audit_fill(struct saves *saves, Pb__ActualReport *report)
{
    LIST_EACH(&saves->audits, node)
    {
        struct save_audit *self = LIST_ITEM(node, struct save_audit, node);
        if (self->state != AUDIT_DONE || self->sent_seq)
            continue;
        pb__actual_verified__init(&self->message);
        self->message.has_checkpoint = true;
        self->message.checkpoint = self->checkpoint;
        self->message.error = self->error;
        self->message.parts = self->parts;
        self->message.n_parts = self->parts_count;
        report->verified = mem_resize(report->verified, report->n_verified + 1, sizeof(void *));
        report->verified[report->n_verified++] = &self->message;
        self->sent_seq = SAVE_SEQ_FILLING;
    }
}

void save_audit_sent(struct saves *saves, Pb__ActualReport *report, uint64_t seq)
{
    LIST_EACH(&saves->audits, node)
    {
        struct save_audit *self = LIST_ITEM(node, struct save_audit, node);
        if (self->sent_seq == SAVE_SEQ_FILLING)
            self->sent_seq = seq;
    }
    mem_free(report->verified);
}

void save_audit_down(struct saves *saves)
{
    LIST_EACH(&saves->audits, node)
    LIST_ITEM(node, struct save_audit, node)->sent_seq = 0;
}
