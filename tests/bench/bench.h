/* bench.h - what all entries share: the loop, the options, waiting.
 *
 * One thread. Waits are bounded, and end when the bench is told to end. */
#pragma once
#include "base/error.h"
#include "base/loop.h"
#include <stdbool.h>
#include <stdint.h>

struct bench {
    struct loop *loop;
    const char *base_dir; /* where private directories are made */
    char *bin;            /* directory of our programs */
    uint32_t runs;        /* 0: the entry's own number */
};
typedef enum status (*bench_entry)(struct bench *bench, struct error *err);

/* Runs the loop until *done is set by a callback that calls bench_wake. */
enum status bench_wait(struct bench *bench, const bool *done, int64_t limit_ms, const char *what,
                       struct error *err) MUST_CHECK;
void bench_wake(struct bench *bench);
void bench_rest(struct bench *bench, int64_t ms); /* the loop runs, nothing is waited for */
static inline uint32_t bench_runs(const struct bench *bench, uint32_t own)
{
    return bench->runs ? bench->runs : own;
}

/* The entries. */
enum status bench_launch(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_gang(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_detect(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_throughput(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_submit(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_metrics(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_rss(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_torch(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_plan(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_stall(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_persist(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_save(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_save_small(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_load(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_load_warm(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_reshard(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_reshard_columns(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_replicated(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_verify(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_export(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_naive(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_peer(struct bench *bench, struct error *err) MUST_CHECK;
enum status bench_checkpoint_slowdown(struct bench *bench, struct error *err) MUST_CHECK;
