/* program.h - what simulated workers do: steps at random speeds, reports, gates, saves, crashes;
 * with the real librondo pieces for records and gates. */
#pragma once
#include "tests/sim/host.h"

struct program;
struct program *program_create(struct host_proc *proc);
void program_destroy(struct program *program);
void program_signal(struct program *program, int signo);
