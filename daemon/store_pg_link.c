#include "daemon/store_pg_link.h"
#include "base/mem.h"
#include "daemon/store_pg_statement.h"
#include <errno.h>
#include <string.h>
#include <uv.h>

#define BACKOFF_US_MIN 50000
#define BACKOFF_US_MAX 1000000
#define CONNECT_US     5000000
#define SETUP_US       600000000 /* migrations may build indexes */

enum link_state { LINK_IDLE, LINK_CONNECTING, LINK_OPEN, LINK_PREPARING, LINK_READY, LINK_CLOSED };

struct store_pg_link {
    struct loop *loop;
    char *name, *conninfo;
    int64_t answer_us_max;
    void (*on_open)(void *arg);
    void (*on_ready)(void *arg);
    void (*on_lost)(void *arg, const struct error *err);
    void *arg;
    enum link_state state;
    PGconn *conn;
    uv_poll_t *poll; /* of poll_fd; closed before the connection */
    int poll_fd, poll_events;
    struct loop_timer *timer; /* back-off, or the watch over answers */
    int64_t backoff_us, heard_us;
    struct list ops; /* sent, unanswered */
    bool broken;     /* a statement could not be queued: its transaction must never end well */
    struct store_pg_op prepare;
    store_pg_link_answer ask_done; /* NULL: no question is out */
    void *ask_arg;
    PGresult *ask_result;
};

static void link_step(struct store_pg_link *link);

static void link_poll_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

static void link_poll_close(struct store_pg_link *link)
{
    if (!link->poll)
        return;
    uv_poll_stop(link->poll);
    uv_close((uv_handle_t *)link->poll, link_poll_closed);
    link->poll = NULL;
}

static void link_disconnect(struct store_pg_link *link)
{
    link_poll_close(link);
    PQclear(link->ask_result);
    link->ask_result = NULL;
    link->ask_done = NULL;
    if (link->conn)
        PQfinish(link->conn);
    link->conn = NULL;
}

/* The only way out of every state but CLOSED; tells everybody, then waits for another try. */
static void link_lose_as(struct store_pg_link *link, const struct error *why)
{
    struct error err = *why;

    link_disconnect(link);
    link->broken = false;
    link->state = LINK_IDLE;
    loop_timer_set(link->timer, link->backoff_us);
    link->backoff_us *= 2;
    if (link->backoff_us > BACKOFF_US_MAX)
        link->backoff_us = BACKOFF_US_MAX;
    struct list lost;
    list_init(&lost);
    for (struct list *node; (node = list_take_first(&link->ops));)
        list_add_last(&lost, node);
    link->on_lost(link->arg, &err);
    for (struct list *node; (node = list_take_first(&lost));) {
        struct store_pg_op *op = LIST_ITEM(node, struct store_pg_op, node);
        op->done(op, STATUS_UNKNOWN, &err);
    }
}

static void link_lose(struct store_pg_link *link, const char *what)
{
    struct error err = {0};
    const char *said = link->conn ? PQerrorMessage(link->conn) : "";
    int len = (int)strcspn(said, "\n");

    error_set(&err, STATUS_UNKNOWN, "%s%s%.*s", what, len ? ": " : "", len, said);
    link_lose_as(link, &err);
}

static void link_poll_event(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events; /* libpq finds out by itself what happened */
    link_step(poll->data);
}

/* The socket may be another one after each step of connecting. */
static void link_poll_want(struct store_pg_link *link, int events)
{
    int fd = PQsocket(link->conn);

    if (link->poll && (link->poll_fd != fd))
        link_poll_close(link);
    if (!link->poll) {
        link->poll = NEW(uv_poll_t);
        link->poll_fd = fd;
        link->poll_events = 0;
        link->poll->data = link;
        if (uv_poll_init(loop_uv_handle(link->loop), link->poll, fd) != 0) {
            mem_free(link->poll);
            link->poll = NULL;
            link_lose(link, "watch the socket");
            return;
        }
    }
    if (link->poll_events == events)
        return;
    link->poll_events = events;
    uv_poll_start(link->poll, events, link_poll_event);
}

static void link_connect_step(struct store_pg_link *link)
{
    switch (PQconnectPoll(link->conn)) {
    case PGRES_POLLING_READING:
        link_poll_want(link, UV_READABLE);
        return;
    case PGRES_POLLING_WRITING:
        link_poll_want(link, UV_WRITABLE);
        return;
    case PGRES_POLLING_OK:
        break;
    default:
        link_lose(link, "connect");
        return;
    }
    if (PQsetnonblocking(link->conn, 1) != 0) {
        link_lose(link, "set non-blocking");
        return;
    }
    link->state = LINK_OPEN;
    loop_timer_set(link->timer, SETUP_US);
    link_poll_want(link, UV_READABLE);
    if (link->state == LINK_OPEN)
        link->on_open(link->arg);
}

static void link_notice(void *arg, const PGresult *result)
{
    (void)arg;
    (void)result; /* warnings are in the server's log */
}

static void link_connect(struct store_pg_link *link)
{
    const char *keys[] = {"dbname",          "application_name", "client_encoding",
                          "keepalives_idle", "tcp_user_timeout", NULL};
    const char *values[] = {link->conninfo, link->name, "UTF8", "5", "15000", NULL};

    link->state = LINK_CONNECTING;
    link->conn = PQconnectStartParams(keys, values, 1);
    if (!link->conn || PQstatus(link->conn) == CONNECTION_BAD) {
        link_lose(link, "connect");
        return;
    }
    PQsetNoticeReceiver(link->conn, link_notice, NULL);
    loop_timer_set(link->timer, CONNECT_US);
    link_poll_want(link, UV_WRITABLE);
}

static void link_timer(void *arg)
{
    struct store_pg_link *link = arg;

    if (link->state == LINK_IDLE) {
        link_connect(link);
        return;
    }
    if (link->state == LINK_CONNECTING || link->state == LINK_OPEN) {
        link_lose(link, link->state == LINK_OPEN ? "set-up took too long" : "no answer to connect");
        return;
    }
    int64_t silent = loop_now_us(link->loop) - link->heard_us;
    if (link->broken)
        link_lose(link, "send");
    else if (!list_is_empty(&link->ops) && silent >= link->answer_us_max)
        link_lose(link, "no answer from the database");
    else
        loop_timer_set(link->timer, link->answer_us_max / 4 + 1);
}

static void link_flush(struct store_pg_link *link)
{
    int rc = PQflush(link->conn);

    if (rc < 0)
        link_lose(link, "send");
    else
        link_poll_want(link, rc ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

/* --- plain questions while open */

static void link_ask_finish(struct store_pg_link *link)
{
    store_pg_link_answer done = link->ask_done;
    PGresult *result = link->ask_result;
    struct error err = {0};
    ExecStatusType kind = PQresultStatus(result);

    link->ask_done = NULL;
    link->ask_result = NULL;
    if (kind == PGRES_TUPLES_OK || kind == PGRES_COMMAND_OK) {
        done(link->ask_arg, result, NULL);
    } else {
        store_pg_statement_error(result, &err);
        done(link->ask_arg, NULL, &err);
    }
    PQclear(result);
}

static void link_ask_read(struct store_pg_link *link)
{
    while (link->state == LINK_OPEN && link->ask_done && !PQisBusy(link->conn)) {
        PGresult *result = PQgetResult(link->conn);
        if (!result) {
            link_ask_finish(link);
            continue;
        }
        if (link->ask_result && PQresultStatus(link->ask_result) == PGRES_FATAL_ERROR) {
            PQclear(result); /* the first error says it */
        } else {
            PQclear(link->ask_result);
            link->ask_result = result;
        }
    }
}

void store_pg_link_ask(struct store_pg_link *link, const char *sql, const char *const *values,
                       int values_count, store_pg_link_answer done, void *arg)
{
    int sent = values_count
                   ? PQsendQueryParams(link->conn, sql, values_count, NULL, values, NULL, NULL, 0)
                   : PQsendQuery(link->conn, sql);

    link->ask_done = done;
    link->ask_arg = arg;
    if (!sent || PQflush(link->conn) < 0) {
        loop_timer_set(link->timer, 0); /* lost, but not within this call */
        return;
    }
    loop_timer_set(link->timer, SETUP_US);
    link_poll_want(link, UV_READABLE | UV_WRITABLE);
}

/* --- ops while ready */

static void link_arm(struct store_pg_link *link)
{
    if (!list_is_empty(&link->ops) && LIST_ITEM(link->ops.next, struct store_pg_op, node)->by_row)
        PQsetSingleRowMode(link->conn); /* refused between statements: then rows come at once */
}

static void link_op_finish(struct store_pg_link *link, struct store_pg_op *op)
{
    list_remove(&op->node);
    link_arm(link);
    op->done(op, op->st, op->st == STATUS_OK ? NULL : &op->err);
}

static void link_op_result(struct store_pg_link *link, struct store_pg_op *op, PGresult *result)
{
    switch (PQresultStatus(result)) {
    case PGRES_PIPELINE_SYNC:
        link_op_finish(link, op);
        break;
    case PGRES_TUPLES_OK:
    case PGRES_SINGLE_TUPLE:
    case PGRES_COMMAND_OK:
        if (op->result && op->st == STATUS_OK)
            op->result(op, op->at, result);
        break;
    case PGRES_PIPELINE_ABORTED:
        break;
    default:
        if (op->st == STATUS_OK) {
            op->at_failed = op->at;
            op->st = store_pg_statement_error(result, &op->err);
        }
        break;
    }
    PQclear(result);
}

static bool link_is_piped(const struct store_pg_link *link)
{
    return link->state == LINK_READY || link->state == LINK_PREPARING;
}

static void link_ops_read(struct store_pg_link *link)
{
    while (link_is_piped(link) && !list_is_empty(&link->ops) && !PQisBusy(link->conn)) {
        struct store_pg_op *op = LIST_ITEM(link->ops.next, struct store_pg_op, node);
        PGresult *result = PQgetResult(link->conn);
        link->heard_us = loop_now_us(link->loop);
        if (result) {
            link_op_result(link, op, result);
            continue;
        }
        if (PQstatus(link->conn) == CONNECTION_BAD) {
            link_lose(link, "read");
            return;
        }
        op->at++;
        link_arm(link);
    }
}

static void link_step(struct store_pg_link *link)
{
    if (link->state == LINK_CONNECTING) {
        link_connect_step(link);
        return;
    }
    if (!PQconsumeInput(link->conn)) {
        link_lose(link, "read");
        return;
    }
    if (link->state == LINK_OPEN)
        link_ask_read(link);
    else
        link_ops_read(link);
    if (link->conn && link->state != LINK_CONNECTING)
        link_flush(link);
    for (PGnotify *note; link->conn && (note = PQnotifies(link->conn));)
        PQfreemem(note);
}

void store_pg_link_begin(struct store_pg_link *link, struct store_pg_op *op)
{
    op->at = 0;
    op->st = STATUS_OK;
    if (list_is_empty(&link->ops))
        link->heard_us = loop_now_us(link->loop);
    list_add_last(&link->ops, &op->node);
}

void store_pg_link_call(struct store_pg_link *link, const char *statement, int count,
                        const char *const *values, const int *lengths)
{
    int binary[STORE_PG_VALUES_MAX];

    for (int k = 0; k < STORE_PG_VALUES_MAX; k++)
        binary[k] = 1;
    if (!link->broken &&
        !PQsendQueryPrepared(link->conn, statement, count, values, lengths, binary, 1))
        link->broken = true;
}

void store_pg_link_end(struct store_pg_link *link)
{
    if (link->broken || !PQpipelineSync(link->conn) || PQflush(link->conn) < 0) {
        link->broken = true;
        loop_timer_set(link->timer, 0); /* lost, but not within this call */
        return;
    }
    link_arm(link);
    link_poll_want(link, UV_READABLE | UV_WRITABLE);
}

static void link_prepared(struct store_pg_op *op, enum status st, const struct error *err)
{
    struct store_pg_link *link = CONTAINER_OF(op, struct store_pg_link, prepare);

    if (link->state != LINK_PREPARING)
        return; /* lost meanwhile: on_lost was told */
    if (st != STATUS_OK) {
        struct error why = *err;
        if (st != STATUS_UNKNOWN && op->at_failed < STORE_STATEMENT_COUNT)
            error_wrap(&why, "prepare %s", store_pg_statements[op->at_failed].name);
        link_lose_as(link, &why);
        return;
    }
    link->state = LINK_READY;
    link->backoff_us = BACKOFF_US_MIN;
    link->on_ready(link->arg);
}

void store_pg_link_prepare(struct store_pg_link *link)
{
    bool ok = PQenterPipelineMode(link->conn) == 1;

    link->state = LINK_PREPARING;
    link->prepare.done = link_prepared;
    store_pg_link_begin(link, &link->prepare);
    for (size_t i = 0; ok && i < STORE_STATEMENT_COUNT; i++)
        ok = PQsendPrepare(link->conn, store_pg_statements[i].name, store_pg_statements[i].sql, 0,
                           NULL) == 1;
    loop_timer_set(link->timer, ok ? link->answer_us_max / 4 + 1 : 0);
    store_pg_link_end(link);
}

/* --- life */

static enum status link_check(const char *conninfo, struct error *err)
{
    char *text = NULL;
    PQconninfoOption *options = PQconninfoParse(conninfo, &text);
    bool local = false;

    if (!options) {
        error_set(err, STATUS_INVALID, "database: %s", text ? text : "not a connection string");
        PQfreemem(text);
        return STATUS_INVALID;
    }
    for (const PQconninfoOption *o = options; o->keyword; o++)
        if (o->val && ((strcmp(o->keyword, "host") == 0 && o->val[0] == '/') ||
                       (strcmp(o->keyword, "hostaddr") == 0 && o->val[0])))
            local = true;
    PQconninfoFree(options);
    if (!local)
        return error_set(
            err, STATUS_INVALID,
            "database: give host=/socket/directory or hostaddr=1.2.3.4 (a name look-up "
            "would stop the daemon)");
    return STATUS_OK;
}

enum status store_pg_link_create(const struct store_pg_link_options *options,
                                 struct store_pg_link **out, struct error *err)
{
    enum status st = link_check(options->conninfo, err);
    if (st != STATUS_OK)
        return st;
    struct store_pg_link *link = NEW(struct store_pg_link);
    link->loop = options->loop;
    link->name = mem_strdup(options->name);
    link->conninfo = mem_strdup(options->conninfo);
    link->answer_us_max = (int64_t)options->answer_ms_max * 1000;
    link->on_open = options->on_open;
    link->on_ready = options->on_ready;
    link->on_lost = options->on_lost;
    link->arg = options->arg;
    link->backoff_us = BACKOFF_US_MIN;
    link->timer = loop_timer_create(link->loop, link_timer, link);
    list_init(&link->ops);
    *out = link;
    return STATUS_OK;
}

void store_pg_link_destroy(struct store_pg_link *link)
{
    if (!link)
        return;
    link_disconnect(link);
    link->state = LINK_CLOSED;
    for (struct list *node; (node = list_take_first(&link->ops));) {
        struct store_pg_op *op = LIST_ITEM(node, struct store_pg_op, node);
        op->done(op, STATUS_CANCELLED, &(struct error){STATUS_CANCELLED, "the store is closed"});
    }
    loop_timer_destroy(link->timer);
    mem_free(link->name);
    mem_free(link->conninfo);
    mem_free(link);
}

void store_pg_link_open(struct store_pg_link *link)
{
    if (link->state == LINK_IDLE)
        loop_timer_set(link->timer, 0);
}

void store_pg_link_drop(struct store_pg_link *link, bool for_ever, const char *why)
{
    if (link->state != LINK_IDLE && link->state != LINK_CLOSED)
        link_lose(link, why);
    if (for_ever) {
        loop_timer_stop(link->timer);
        link->state = LINK_CLOSED;
    }
}

bool store_pg_link_is_ready(const struct store_pg_link *link)
{
    return link->state == LINK_READY;
}

int store_pg_link_pid(const struct store_pg_link *link)
{
    return link->conn ? PQbackendPID(link->conn) : 0;
}
