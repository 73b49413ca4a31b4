/* child.c - one child: a process handle, three pipes, two timers.
 *
 * Life: STARTING (spawn failed, telling) or RUNNING -> KILLED (deadline or cancel) -> EXITED
 * (draining its pipes) -> TOLD. The struct lives until TOLD and until each handle is closed, which
 * for an unkillable process may be long after: `handles` counts them. */
#include "base/child.h"
#include "base/text.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <uv.h>

#define CHILD_OUTPUT_MAX ((size_t)64 << 10)
#define CHILD_TIMEOUT_US ((int64_t)60 * 1000000)
#define CHILD_DRAIN_US   ((int64_t)1000000) /* after exit, for what is still in the pipes */
#define CHILD_KILL_US    ((int64_t)5000000) /* after SIGKILL; then it is told without an exit */

struct child_pipe {
    uv_pipe_t uv;
    struct child *child;
    struct text text;
    bool open; /* uv is initialised and not closing */
    char buffer[4096];
};

struct child {
    struct loop *loop;
    child_done done;
    void *arg;
    uv_process_t process;
    bool spawned, exited, told;
    struct child_pipe input, output, errors;
    uv_write_t write;
    char *input_bytes;
    struct loop_timer *timer; /* deadline, then drain or kill */
    int handles;              /* of libuv, not yet closed */
    int64_t exit_code;
    int signal;
    enum status st; /* why we ended it; OK: it ended by itself */
    struct error err;
};

/* --- ends */

static void child_free_when_over(struct child *child)
{
    if (!child->told || child->handles > 0)
        return;
    text_fini(&child->output.text);
    text_fini(&child->errors.text);
    mem_free(child->input_bytes);
    mem_free(child);
}

static void child_closed(uv_handle_t *handle)
{
    struct child *child = handle->data;
    child->handles--;
    child_free_when_over(child);
}

static void child_pipe_close(struct child_pipe *pipe)
{
    if (!pipe->open)
        return;
    pipe->open = false;
    uv_close((uv_handle_t *)&pipe->uv, child_closed);
}

static void child_tell(void *arg)
{
    struct child *child = arg;
    bool own_end = child->exited && child->signal == 0;
    struct child_result result = {
        .st = child->st,
        .exit_code = own_end ? (int)child->exit_code : -1,
        .signal = child->exited ? child->signal : 0,
        .output = text_get(&child->output.text),
        .errors = text_get(&child->errors.text),
        .output_len = child->output.text.len,
        .errors_len = child->errors.text.len,
        .cut = child->output.text.full || child->errors.text.full,
        .err = child->st == STATUS_OK ? NULL : &child->err,
    };
    child->told = true;
    loop_timer_destroy(child->timer);
    child->timer = NULL;
    child_pipe_close(&child->input);
    child_pipe_close(&child->output);
    child_pipe_close(&child->errors);
    child->done(child->arg, &result);
    child_free_when_over(child);
}

static void child_tell_if_complete(struct child *child)
{
    if (!child->told && child->exited && !child->output.open && !child->errors.open)
        child_tell(child);
}

/* A group keeps its number while it has members. Right after the leader was reaped it may have
 * none; the number is then free, but the kernel hands out numbers in turn, not at once again. */
static void child_kill_group(struct child *child)
{
    if (child->spawned && child->process.pid > 0)
        kill(-child->process.pid, SIGKILL);
}

static void child_end(struct child *child, enum status st, const char *why)
{
    if (child->st != STATUS_OK || child->exited || child->told)
        return;
    child->st = st;
    error_set(&child->err, st, "%s", why);
    child_kill_group(child);
    loop_timer_set(child->timer, CHILD_KILL_US);
}

static void child_timer(void *arg)
{
    struct child *child = arg;
    if (child->exited || child->st != STATUS_OK)
        child_tell(child); /* pipes held by a stranger, or unkillable: do not wait for ever */
    else
        child_end(child, STATUS_DEADLINE, "it took too long and was killed");
}

static void child_exited(uv_process_t *process, int64_t exit_code, int signal)
{
    struct child *child = process->data;
    child->exited = true;
    child->exit_code = exit_code;
    child->signal = signal;
    child_kill_group(child); /* what it left behind */
    uv_close((uv_handle_t *)process, child_closed);
    if (child->told)
        return;
    child_pipe_close(&child->input);
    loop_timer_set(child->timer, CHILD_DRAIN_US);
    child_tell_if_complete(child);
}

/* --- pipes */

static void child_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct child_pipe *pipe = CONTAINER_OF(handle, struct child_pipe, uv);
    (void)suggested;
    *buffer = uv_buf_init(pipe->buffer, sizeof(pipe->buffer));
}

static void child_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buffer)
{
    struct child_pipe *pipe = CONTAINER_OF(stream, struct child_pipe, uv);
    struct child *child = pipe->child;

    if (got < 0) {
        child_pipe_close(pipe);
        child_tell_if_complete(child);
        return;
    }
    size_t len = (size_t)got, room = pipe->text.max - pipe->text.len;
    text_add_bytes(&pipe->text, buffer->base, len < room ? len : room);
    if (len > room)
        pipe->text.full = true;
}

static void child_written(uv_write_t *write, int status)
{
    struct child *child = write->data;
    (void)status; /* a child that does not read its input says so by its exit code */
    child_pipe_close(&child->input);
}

static void child_pipe_init(struct child *child, struct child_pipe *pipe, size_t max)
{
    pipe->child = child;
    text_init(&pipe->text, max);
    uv_pipe_init(loop_uv_handle(child->loop), &pipe->uv, 0);
    pipe->uv.data = child;
    pipe->open = true;
    child->handles++;
}

static void child_pipes_begin(struct child *child, size_t input_len)
{
    uv_read_start((uv_stream_t *)&child->output.uv, child_alloc, child_read);
    uv_read_start((uv_stream_t *)&child->errors.uv, child_alloc, child_read);
    if (!child->input.open)
        return;
    uv_buf_t bytes = uv_buf_init(child->input_bytes, (unsigned)input_len);
    child->write.data = child;
    if (uv_write(&child->write, (uv_stream_t *)&child->input.uv, &bytes, 1, child_written) != 0)
        child_pipe_close(&child->input);
}

/* --- start */

static int child_spawn(struct child *child, const struct child_options *options)
{
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
         .data.stream = (uv_stream_t *)&child->output.uv},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
         .data.stream = (uv_stream_t *)&child->errors.uv},
    };
    uv_process_options_t spawn = {
        .exit_cb = child_exited,
        .file = options->argv[0],
        .args = (char **)(uintptr_t)options->argv, /* libuv reads them only */
        .env = (char **)(uintptr_t)options->env,
        .cwd = options->dir,
        .flags = UV_PROCESS_DETACHED, /* setsid: a group of its own */
        .stdio_count = 3,
        .stdio = stdio,
        .uid = options->uid,
        .gid = options->gid,
    };
    if (options->uid || options->gid)
        spawn.flags |= UV_PROCESS_SETUID | UV_PROCESS_SETGID;
    if (child->input.open) {
        stdio[0].flags = UV_CREATE_PIPE | UV_READABLE_PIPE;
        stdio[0].data.stream = (uv_stream_t *)&child->input.uv;
    }
    child->process.data = child;
    child->handles++;
    int rc = uv_spawn(loop_uv_handle(child->loop), &child->process, &spawn);
    if (rc != 0)
        uv_close((uv_handle_t *)&child->process, child_closed);
    return rc;
}

struct child *child_start(struct loop *loop, const struct child_options *options, child_done done,
                          void *arg)
{
    struct child *child = NEW(struct child);
    size_t max = options->output_max ? options->output_max : CHILD_OUTPUT_MAX;

    child->loop = loop;
    child->done = done;
    child->arg = arg;
    child->timer = loop_timer_create(loop, child_timer, child);
    child_pipe_init(child, &child->output, max);
    child_pipe_init(child, &child->errors, max);
    if (options->input) {
        child->input_bytes = mem_dup(options->input, options->input_len);
        child_pipe_init(child, &child->input, 1);
    }
    int rc = child_spawn(child, options);
    if (rc != 0) {
        child->st = rc == UV_ENOENT                     ? STATUS_NOT_FOUND
                    : rc == UV_EACCES || rc == UV_EPERM ? STATUS_DENIED
                                                        : STATUS_UNAVAILABLE;
        error_set(&child->err, child->st, "start %s: %s", options->argv[0], uv_strerror(rc));
        loop_timer_set(child->timer, 0); /* child_timer tells */
        return child;
    }
    child->spawned = true;
    loop_timer_set(child->timer, options->timeout_us ? options->timeout_us : CHILD_TIMEOUT_US);
    child_pipes_begin(child, options->input_len);
    return child;
}

void child_cancel(struct child *child)
{
    child_end(child, STATUS_CANCELLED, "it was cancelled");
}

pid_t child_pid(const struct child *child)
{
    return child->spawned && !child->exited ? child->process.pid : 0;
}
