/* program.c - what simulated workers do. See program.h. */
#include "tests/sim/program.h"
#include "base/mem.h"
#include "tests/sim/cluster.h"
#include "tests/support/slot_fill.h"
#include "worker/env.h"
#include "worker/gate.h"
#include "worker/record.h"
#include "worker/reports.h"
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ASK_AGAIN_US 50000

enum doing { STEPPING, SAVING_DIR, SAVING_COMMIT, SAVING_STAGE, SAVING_STAGED };
struct program {
    struct host_proc *proc;
    struct sim *sim;
    struct page *page;
    struct gate save, stop;
    struct reports reports;
    bool opened;
    int64_t job, step, last, every;
    uint32_t attempt, rank, world;
    int64_t pace_us;
    enum doing doing;
    uint64_t asks;
    char dir[4096];
    bool deaf;   /* ignores TERM */
    bool shards; /* its job saves by slots */
    bool stops;
};

static void program_turn(void *arg);

static void later(struct program *program, int64_t delay_us)
{
    sim_after(program->sim, NULL, delay_us, program_turn, program);
}

static int64_t env_number(const struct host_proc *proc, const char *name, int64_t otherwise)
{
    const char *text = host_proc_env(proc, name);

    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static void write_record(struct program *program, struct record *record)
{
    if (reports_append(&program->reports, record->bytes, record->len) != 0)
        sim_fail(program->sim, "a record could not be written");
}

static bool open_files(struct program *program)
{
    char path[800];
    int page;

    snprintf(path, sizeof(path), "%s/page", program->proc->dir);
    page = open(path, O_RDWR | O_CLOEXEC);
    if (page < 0)
        return false;
    program->page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    close(page);
    if (program->page == MAP_FAILED)
        return false;
    int dir = open(program->proc->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    program->opened =
        dir >= 0 && reports_open(&program->reports, dir, &program->page->reports) == 0;
    close(dir);
    return program->opened;
}

struct program *program_create(struct host_proc *proc)
{
    struct program *program = NEW(struct program);
    static struct record record;

    program->proc = proc;
    program->sim = proc->host->sim;
    program->job = env_number(proc, ENV_JOB, 0);
    program->attempt = (uint32_t)env_number(proc, ENV_ATTEMPT, 0);
    program->rank = (uint32_t)env_number(proc, ENV_RANK, 0);
    program->world = (uint32_t)env_number(proc, ENV_WORLD, 1);
    program->shards = program->job % 2 == 0; /* the same for all of its ranks */
    program->step = env_number(proc, ENV_RESUME_STEP, 0);
    program->last = env_number(proc, "STEPS", 20);
    program->every = env_number(proc, ENV_EVERY_STEPS, 0);
    program->pace_us = sim_between(program->sim, 3000, 30000);
    program->deaf = sim_chance(program->sim, 50);
    if (!open_files(program)) {
        sim_fail(program->sim, "%s: page or reports are missing", proc->tag);
        return program;
    }
    gate_init(&program->save, &program->page->save, &program->page->save_answered);
    gate_init(&program->stop, &program->page->stop, &program->page->stop_answered);
    atomic_store(&program->page->joined, 1);
    record_joined(&record);
    write_record(program, &record);
    sim_trace(program->sim, "%s: %s runs from step %" PRId64, proc->host->name, proc->tag,
              program->step);
    later(program, program->pace_us);
    return program;
}

void program_destroy(struct program *program)
{
    if (!program)
        return;
    if (program->page && program->page != MAP_FAILED)
        munmap(program->page, PAGE_BYTES);
    if (program->opened)
        reports_close(&program->reports);
    mem_free(program);
}

/* --- ends */
static void die(void *arg)
{
    struct program *program = arg;

    host_proc_exit(program->proc, 0, SIGTERM);
}

void program_signal(struct program *program, int signo)
{
    if (signo == SIGTERM && !program->deaf)
        sim_after(program->sim, NULL, sim_between(program->sim, 100, 200000), die, program);
}

static void finish(struct program *program)
{
    static struct record record;

    atomic_store(&program->page->finished, 1);
    record_finished(&record);
    write_record(program, &record);
    host_proc_exit(program->proc, 0, 0);
}

/* --- saves */
static void ask(struct program *program, Pb__WorkerAsk__Kind kind,
                void (*answer)(void *arg, const Pb__WorkerAnswer *answer));

static void committed(void *arg, const Pb__WorkerAnswer *answer)
{
    struct program *program = arg;

    if (program->doing != SAVING_COMMIT || answer->number != program->asks)
        return;
    program->doing = STEPPING;
    later(program, program->pace_us);
}

static void got_dir(void *arg, const Pb__WorkerAnswer *answer)
{
    struct program *program = arg;
    char path[4200];
    FILE *file;

    if (program->doing != SAVING_DIR || answer->number != program->asks)
        return;
    if (answer->status != 0 || !answer->dir) { /* a save that fails is no reason to stop */
        program->doing = STEPPING;
        later(program, program->pace_us);
        return;
    }
    snprintf(path, sizeof(path), "%s/state", answer->dir);
    file = fopen(path, "w");
    if (file) {
        fprintf(file, "%" PRId64 "\n", program->step);
        fclose(file);
    }
    program->doing = SAVING_COMMIT;
    ask(program, PB__WORKER_ASK__KIND__COMMIT, committed);
}

static void staged(void *arg, const Pb__WorkerAnswer *answer)
{
    struct program *program = arg;

    if (program->doing != SAVING_STAGED || answer->number != program->asks)
        return;
    if (answer->status != 0)
        sim_fail(program->sim, "%s: STAGED is refused: %s", program->proc->tag, answer->error);
    program->doing = STEPPING;
    later(program, program->pace_us);
}

/* Fills it, and may die before it says so: what is filled is saved all the same. */
static void got_slot(void *arg, const Pb__WorkerAnswer *answer)
{
    struct program *program = arg;
    struct cluster *cluster = program->proc->host->cluster;

    if (program->doing != SAVING_STAGE || answer->number != program->asks)
        return;
    if (answer->status == STATUS_UNAVAILABLE) /* asked again in a while */
        return;
    if (answer->status != 0 || !answer->dir) {
        program->doing = STEPPING;
        later(program, program->pace_us);
        return;
    }
    bool dies = !cluster->calm && sim_chance(program->sim, 60);
    bool half = dies && sim_chance(program->sim, 300);
    if (!slot_fill_file(answer->dir, program->world, program->rank, program->step,
                        program->step * 10, half ? SLOT_FILL_UNFILLED : SLOT_FILL_GOOD))
        sim_fail(program->sim, "%s: a slot could not be filled", program->proc->tag);
    if (!half)
        cluster->filled++;
    if (dies) {
        host_proc_exit(program->proc, 0, SIGKILL);
        return;
    }
    program->doing = SAVING_STAGED;
    ask(program, PB__WORKER_ASK__KIND__STAGED, staged);
}

struct again {
    struct program *program;
    uint64_t number;
};

/* Not answered: the agent is down, or was. */
static void ask_again(void *arg)
{
    struct again again = *(struct again *)arg;
    struct program *program = again.program;

    mem_free(arg);
    if (program->proc->exited || program->asks != again.number)
        return;
    if (program->doing == SAVING_DIR)
        ask(program, PB__WORKER_ASK__KIND__SAVE_DIR, got_dir);
    else if (program->doing == SAVING_COMMIT)
        ask(program, PB__WORKER_ASK__KIND__COMMIT, committed);
    else if (program->doing == SAVING_STAGE)
        ask(program, PB__WORKER_ASK__KIND__STAGE, got_slot);
    else if (program->doing == SAVING_STAGED)
        ask(program, PB__WORKER_ASK__KIND__STAGED, staged);
}

static void ask(struct program *program, Pb__WorkerAsk__Kind kind,
                void (*answer)(void *arg, const Pb__WorkerAnswer *answer))
{
    Pb__WorkerAsk one = PB__WORKER_ASK__INIT;
    struct again again = {program, ++program->asks};

    one.has_protocol = one.has_number = one.has_kind = one.has_step = one.has_samples = true;
    one.protocol = 1;
    one.number = program->asks;
    one.kind = kind;
    one.step = program->step;
    one.samples = program->step * 10;
    one.has_bytes = kind == PB__WORKER_ASK__KIND__STAGE;
    one.bytes = SLOT_FILL_BYTES;
    host_ask(program->proc, &one, answer, program);
    sim_after_owned(program->sim, NULL, ASK_AGAIN_US, ask_again, mem_dup(&again, sizeof(again)));
}

/* --- steps */
static void report(struct program *program)
{
    static struct record record;
    struct record_value loss = {"loss", 4, false, 1.0 / (double)(program->step + 1), 0};
    const char *why = NULL;
    char key[200];

    if (!record_report(&record, program->step, program->step * 10, program->step * 1000, &loss, 1,
                       &why)) {
        sim_fail(program->sim, "record: %s", why);
        return;
    }
    write_record(program, &record);
    snprintf(key, sizeof(key), "%" PRId64 ".%u.main.%u.%s.%" PRId64, program->job, program->attempt,
             program->rank, host_proc_env(program->proc, ENV_INCARNATION), program->step);
    cluster_reported(program->proc->host->cluster, key);
}

static void after_gates(struct program *program, bool save)
{
    report(program);
    if (save && !program->stops) {
        program->doing = program->shards ? SAVING_STAGE : SAVING_DIR;
        if (program->shards)
            ask(program, PB__WORKER_ASK__KIND__STAGE, got_slot);
        else
            ask(program, PB__WORKER_ASK__KIND__SAVE_DIR, got_dir);
        return;
    }
    later(program, program->pace_us);
}

static void said(const struct program *program, int kind, int64_t step, enum gate_answer answer)
{
    struct cluster_answer one = {.job = program->job,
                                 .step = step,
                                 .attempt = program->attempt,
                                 .incarnation =
                                     (uint32_t)env_number(program->proc, ENV_INCARNATION, 1),
                                 .kind = kind,
                                 .yes = answer == GATE_YES};
    cluster_said(program->proc->host->cluster, &one);
}

static void program_turn(void *arg)
{
    struct program *program = arg;
    struct cluster *cluster = program->proc->host->cluster;

    if (program->proc->exited || program->doing != STEPPING)
        return;
    if (program->stops || program->step >= program->last) {
        finish(program);
        return;
    }
    if (!cluster->calm && sim_chance(program->sim, cluster->lonely ? 8 : 3)) {
        host_proc_exit(program->proc, 1, 0);
        return;
    }
    int64_t next = program->step + 1;
    enum gate_answer save = gate_ask(&program->save, next);
    enum gate_answer stop = save == GATE_WAIT ? GATE_WAIT : gate_ask(&program->stop, next);
    if (save == GATE_WAIT || stop == GATE_WAIT) {
        later(program, 1000);
        return;
    }
    said(program, 1, next, save);
    said(program, 2, next, stop);
    program->step = next;
    program->stops = stop == GATE_YES;
    after_gates(program, save == GATE_YES || (program->every && next % program->every == 0));
}
