/* gang.h - the workers of one attempt that all live here, and their restarts in place.
 *
 * Loop thread only. While no leader answers, and its launch allows, a gang in which a worker has
 * failed is stopped, waited for to the last process, and started again as the next incarnation,
 * from the newest checkpoint that the daemon is known to have committed. The next incarnation is
 * durable (<state>/gang/<job>.<attempt>) before any worker of it is made; from then on the gang is
 * that incarnation, whatever happens to this agent. Whether it may still live is the daemon's to
 * say, as of every worker. */
#pragma once
#include "agent/worker.h"

struct gangs;
struct gangs *gangs_create(struct agent *agent);
void gangs_destroy(struct gangs *gangs); /* NULL is fine */
/* After the workers of an earlier agent were adopted: what they have become since they were made.
 */
/* err: they cannot be read, so nothing may be started. */
void gangs_load(struct gangs *gangs, void (*done)(struct agent *agent, const struct error *err));
uint32_t gangs_incarnation(const struct gangs *gangs, const Pb__WorkerKey *key); /* newest */
void gangs_connected(struct gangs *gangs); /* the daemon is to be told of all */
/* Adds those that it was not told of; seq 0: it was not sent. Frees what fill has made. */
void gangs_fill(struct gangs *gangs, Pb__ActualReport *report);
void gangs_sent(struct gangs *gangs, Pb__ActualReport *report, uint64_t seq);
/* A Desired that took account of the reports up to heard_seq may not know of the worker yet. */
bool gangs_untold(const struct gangs *gangs, const struct worker *worker, uint64_t heard_seq);
/* The daemon has had its say of this worker: is there a newer checkpoint than in `before`? It is
 * kept for the next agent. */
void gangs_newest(const struct worker *worker, const Pb__ResumePoint *before);
void gangs_tick(struct gangs *gangs);                              /* every 100 ms */
void gangs_left(struct gangs *gangs, const struct worker *worker); /* it leaves the table */
