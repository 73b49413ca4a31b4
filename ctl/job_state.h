/* job_state.h - words about a job that several verbs print.
 *
 * Any thread; pure. Loans are static or live as long as the job. */
#pragma once
#include "proto/pb.h"
#include <stdbool.h>

bool job_state_ended(Pb__Job__State state);
const char *job_state_name(Pb__Job__State state);
const char *job_state_reason(const Pb__Job *job); /* name of the code, "" when none */
const char *job_state_text(const Pb__Job *job);   /* the reason's sentence, "" when none */
const char *job_state_job_name(const Pb__Job *job);
/* Desired workers of all roles. */
uint64_t job_state_workers(const Pb__Job *job);
/* The enum value's name for a word in any case; false: said on stderr. */
bool job_state_parse(const char *word, Pb__Job__State *out);
