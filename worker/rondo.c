/* rondo.c - the calls of rondo.h, over the member of this process. */
#include "worker/rondo.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "worker/member.h"

#define EXPORT       __attribute__((visibility("default")))
#define PAUSE_MIN_NS 50000
#define PAUSE_MAX_NS 2000000

EXPORT const char *rondo_error(void)
{
    return member_error();
}

EXPORT uint32_t rondo_version(void)
{
    return RONDO_VERSION_NUMBER;
}

EXPORT int rondo_join(const struct rondo_options *options, struct rondo_job *out)
{
    struct rondo_options known = {0};
    uint32_t size;
    int result;

    if (!out || out->size < offsetof(struct rondo_job, rank))
        return member_fail(RONDO_INVALID, "rondo_join: size of struct rondo_job is not set");
    if (options) {
        if (options->size < offsetof(struct rondo_options, every_steps))
            return member_fail(RONDO_INVALID,
                               "rondo_join: size of struct rondo_options is not set");
        memcpy(&known, options, options->size < sizeof known ? options->size : sizeof known);
    }
    result = member_join(options ? &known : NULL);
    if (result != 0)
        return result;
    size = out->size < sizeof *out ? out->size : (uint32_t)sizeof *out;
    memcpy(out, &member.job, size);
    out->size = size;
    return 0;
}

/* --- reports */

static int not_here(void)
{
    return member_fail(RONDO_PRECONDITION, atomic_load(&member.pid)
                                               ? "this process was forked from the member"
                                               : "rondo_join was not called");
}

/* The record is built and written under the lock; fill is NULL for a record that is there. */
static int append_locked(void)
{
    int problem = reports_append(&member.reports, member.record.bytes, member.record.len);

    return problem ? member_fail_errno(-problem, "append to reports") : 0;
}

static int report(int64_t step, int64_t samples, const struct record_value *values, size_t count)
{
    const char *why = "";
    int result;

    if (!member.job.managed)
        return 0;
    (void)pthread_mutex_lock(&member.report_lock);
    if (record_report(&member.record, step, samples, ask_now_us() - member.start_us, values, count,
                      &why))
        result = append_locked();
    else
        result = member_fail(RONDO_INVALID, "%s", why);
    if (result == -RONDO_EXHAUSTED) {
        member.reports.untold += count;
        result = RONDO_DROPPED;
    }
    (void)pthread_mutex_unlock(&member.report_lock);
    return result;
}

static int reporter(size_t count, const void *values)
{
    if (!atomic_load(&member.pid))
        return not_here();
    if (!member_is_writer())
        return RONDO_IGNORED;
    if (count > RECORD_VALUES_MAX || (count && !values))
        return member_fail(RONDO_INVALID, "more than %d values in one report", RECORD_VALUES_MAX);
    return 0;
}

EXPORT int rondo_report(int64_t step, int64_t samples, const struct rondo_value *values,
                        size_t count)
{
    struct record_value list[RECORD_VALUES_MAX];
    int result = reporter(count, values);

    if (result != 0)
        return result;
    for (size_t i = 0; i < count; i++) {
        const struct rondo_value *value = &values[i];
        list[i].name = value->name ? value->name : "";
        list[i].name_len = strnlen(list[i].name, RECORD_NAME_MAX + 1);
        list[i].is_integer = value->is_integer != 0;
        list[i].number = value->is_integer ? 0 : value->number;
        list[i].integer = value->is_integer ? value->integer : 0;
    }
    return report(step, samples, list, count);
}

EXPORT int rondo_report_packed(int64_t step, int64_t samples, const char *schema, size_t schema_len,
                               const void *values, size_t count)
{
    struct record_value list[RECORD_VALUES_MAX];
    const char *at = schema, *end = schema + schema_len;
    int result = reporter(count, values);

    if (result != 0)
        return result;
    for (size_t i = 0; i < count; i++) {
        const char *stop = end - at > 1 ? memchr(at + 1, 0, (size_t)(end - at - 1)) : NULL;
        if (!stop || (*at != 'd' && *at != 'q'))
            return member_fail(RONDO_INVALID, "schema ends or has no kind at value %zu", i);
        list[i].name = at + 1;
        list[i].name_len = (size_t)(stop - at - 1);
        list[i].is_integer = *at == 'q';
        memcpy(&list[i].number, (const char *)values + 8 * i, 8);
        memcpy(&list[i].integer, (const char *)values + 8 * i, 8);
        at = stop + 1;
    }
    return report(step, samples, list, count);
}

EXPORT int rondo_finish(void)
{
    int result;

    if (!member_is_here())
        return not_here();
    if (!member.job.managed || !member.writer)
        return 0;
    (void)pthread_mutex_lock(&member.report_lock);
    record_finished(&member.record);
    result = append_locked();
    (void)pthread_mutex_unlock(&member.report_lock);
    if (result == -RONDO_EXHAUSTED)
        result = 0; /* the page needs no room on disk */
    if (result == 0)
        atomic_store(&member.page->finished, 1);
    return result;
}

EXPORT int rondo_failure(const char *message, const char *traceback)
{
    int result;

    if (!member_is_here())
        return not_here();
    if (!member.job.managed || !member.writer)
        return 0;
    (void)pthread_mutex_lock(&member.report_lock);
    record_failure(&member.record, message, traceback);
    result = append_locked();
    (void)pthread_mutex_unlock(&member.report_lock);
    return result;
}

/* --- gates */

static void pause_for(int64_t *ns, int64_t left_us)
{
    int64_t most_ns = left_us < 1000000 ? left_us * 1000 : *ns;
    struct timespec pause = {0, (long)(*ns < most_ns ? *ns : most_ns)};

    (void)nanosleep(&pause, NULL);
    *ns = *ns * 2 > PAUSE_MAX_NS ? PAUSE_MAX_NS : *ns * 2;
}

static enum gate_answer ask_gate(struct gate *gate, int64_t step)
{
    enum gate_answer answer;

    (void)pthread_mutex_lock(&member.gate_lock);
    answer = gate_ask(gate, step);
    if (gate == &member.stop && answer == GATE_YES)
        member.stop_open = true;
    if (gate == &member.stop && answer == GATE_NO && member.stop_open)
        answer = GATE_YES;
    (void)pthread_mutex_unlock(&member.gate_lock);
    return answer;
}

/* ms < 0: as long as it takes. */
static int should(struct gate *gate, int64_t step, int64_t ms)
{
    int64_t deadline_us = ms < 0 ? INT64_MAX : ask_now_us() + ms * 1000;
    int64_t pause_ns = PAUSE_MIN_NS;
    enum gate_answer answer;

    if (step < 0)
        return member_fail(RONDO_INVALID, "step %lld is negative", (long long)step);
    while ((answer = ask_gate(gate, step)) == GATE_WAIT) {
        int64_t left_us = deadline_us - ask_now_us();
        if (left_us <= 0)
            return RONDO_UNDECIDED;
        pause_for(&pause_ns, left_us);
    }
    return answer == GATE_YES;
}

/* A child that was forked, or a process beside the member, has no say and gets none: "no". */
static int should_save(int64_t step, int64_t ms)
{
    const struct rondo_job *job = &member.job;
    int answer;

    if (!atomic_load(&member.pid))
        return not_here();
    if (!member_is_writer())
        return 0;
    answer = should(&member.save, step, ms);
    if (answer != 0)
        return answer;
    return job->every_steps > 0 && step > job->resume_step && step > 0 &&
           (uint64_t)step % job->every_steps == 0;
}

static int should_stop(int64_t step, int64_t ms)
{
    int answer;

    if (!atomic_load(&member.pid))
        return not_here();
    if (!member_is_writer())
        return 0;
    answer = should(&member.stop, step, ms);
    if (answer == 0 && (!member.job.managed || member.job.world == 1))
        return atomic_load(&member.stopping) != 0;
    return answer;
}

EXPORT int rondo_should_save(int64_t step)
{
    return should_save(step, -1);
}

EXPORT int rondo_should_save_within(int64_t step, uint32_t ms)
{
    return should_save(step, ms);
}

EXPORT int rondo_should_stop(int64_t step)
{
    return should_stop(step, -1);
}

EXPORT int rondo_should_stop_within(int64_t step, uint32_t ms)
{
    return should_stop(step, ms);
}

/* --- SIGTERM */

static void on_sigterm(int signo)
{
    (void)signo;
    atomic_store(&member.stopping, 1);
}

EXPORT int rondo_catch_sigterm(void)
{
    struct sigaction action = {.sa_handler = on_sigterm, .sa_flags = SA_RESTART};

    (void)sigemptyset(&action.sa_mask);
    return sigaction(SIGTERM, &action, NULL) == 0 ? 0 : member_fail_errno(errno, "catch SIGTERM");
}

EXPORT int rondo_stopping(void)
{
    return atomic_load(&member.stopping) != 0;
}

EXPORT void rondo_set_stopping(int stopping)
{
    atomic_store(&member.stopping, stopping != 0);
}

/* --- saves */

EXPORT int rondo_saving(int on)
{
    if (!member_is_here())
        return not_here();
    atomic_store(&member.said_saving, on != 0);
    member_show_saving();
    return 0;
}

static int ask(enum ask_kind kind, int64_t step, int64_t samples, uint32_t ms,
               struct ask_answer *answer)
{
    const struct ask_request request = {.kind = kind, .step = step, .samples = samples};

    return member_ask(&request, ms, answer);
}

static int saver(int64_t step)
{
    if (!member_is_here() || !member.writer)
        return not_here();
    return step < 0 ? member_fail(RONDO_INVALID, "step %lld is negative", (long long)step) : 0;
}

EXPORT int rondo_save_dir(int64_t step, char *out, size_t cap, uint32_t ms)
{
    struct ask_answer answer;
    int result = saver(step);

    if (result != 0)
        return result;
    if (!member.job.managed) {
        result = alone_save_dir(&member.alone, step, out, cap);
        return result ? member_fail_errno(-result, "make the checkpoint's directory") : 0;
    }
    member_set_in_save(1);
    answer.dir[0] = '\0';
    result = ask(ASK_SAVE_DIR, step, -1, ms, &answer);
    if (result == 0 && (answer.dir[0] != '/' || strlen(answer.dir) >= cap))
        result = member_fail(RONDO_INTERNAL, "the agent named no directory, or a very long one");
    if (result == 0)
        memcpy(out, answer.dir, strlen(answer.dir) + 1);
    else
        member_set_in_save(0);
    return result;
}

EXPORT int rondo_commit(int64_t step, int64_t samples, uint32_t ms)
{
    struct ask_answer answer;
    int result = saver(step);

    if (result != 0)
        return result;
    if (samples < 0)
        return member_fail(RONDO_INVALID, "%lld samples", (long long)samples);
    if (!member.job.managed) {
        result = alone_commit(&member.alone, step, samples);
        return result ? member_fail_errno(-result, "commit the checkpoint") : 0;
    }
    result = ask(ASK_COMMIT, step, samples, ms, &answer);
    if (result != -RONDO_DEADLINE)
        member_set_in_save(0);
    return result;
}

EXPORT int rondo_abort_save(int64_t step, uint32_t ms)
{
    struct ask_answer answer;
    int result = saver(step);

    if (result != 0)
        return result;
    if (!member.job.managed) {
        result = alone_abort(&member.alone, step);
        return result ? member_fail_errno(-result, "remove the checkpoint's directory") : 0;
    }
    result = ask(ASK_ABORT_SAVE, step, -1, ms, &answer);
    member_set_in_save(0);
    return result;
}
