/* checkpoint_stand.h - what the entries checkpoint.* share: states of 2 GiB, checkpoints of them in
 * a private directory, cold and warm files, ranks as processes, rivals.
 *
 * No daemon: the library is measured, as workers and agents call it. One thread, blocking. Memory
 * is touched before any clock starts; data is random; both sides sync or neither does. */
#pragma once
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard_image.h"
#include "tests/bench/bench.h"

#define CHECKPOINT_STAND_RUNS  7
#define CHECKPOINT_STAND_RANKS 8
#define CHECKPOINT_STAND_FIO   "fio"

enum checkpoint_split { CHECKPOINT_ROWS, CHECKPOINT_COLUMNS, CHECKPOINT_WHOLE };
struct checkpoint_shape { /* F32 tensors of 2 GiB in all */
    uint32_t tensors, rows, columns;
};
extern const struct checkpoint_shape checkpoint_stand_large; /* 32 of 64 MiB */
extern const struct checkpoint_shape checkpoint_stand_small; /* 8,192 of 256 KiB */
uint64_t checkpoint_stand_bytes(const struct checkpoint_shape *shape);
struct layout_table *checkpoint_stand_layout(const struct checkpoint_shape *shape, uint32_t world,
                                             enum checkpoint_split split);

/* A fresh directory; removed by the second, with all below. */
enum status checkpoint_stand_begin(const struct bench *bench, char **dir,
                                   struct error *err) MUST_CHECK;
void checkpoint_stand_end(char *dir);
char *checkpoint_stand_path(const char *dir, const char *name); /* dir/name */

/* Memory of one rank's pieces by a layout: one mapping, touched. */
struct checkpoint_memory {
    unsigned char *bytes;
    size_t len;
    void **pieces;
};
struct checkpoint_memory checkpoint_stand_memory(const struct layout_table *table, uint32_t rank,
                                                 bool random);
void checkpoint_stand_free(struct checkpoint_memory *memory);
/* Touched, with random bytes when asked. */
void *checkpoint_stand_map(size_t len, bool random);

/* dir becomes a sealed checkpoint of random values. */
enum status checkpoint_stand_save(const char *dir, const struct layout_table *declared,
                                  struct error *err) MUST_CHECK;
/* Puts the rest of a checkpoint beside shards that are there: tables, layout, manifest. */
struct checkpoint_part {
    struct shard_image *image;
    struct shard_written *written; /* of each file */
};
enum status checkpoint_stand_seal(const char *dir, const struct layout_table *storage,
                                  const struct checkpoint_part *parts,
                                  struct error *err) MUST_CHECK;
/* No page of the shards is in memory; checked page by page. */
enum status checkpoint_stand_cold(const char *dir, struct error *err) MUST_CHECK;
enum status checkpoint_stand_cold_file(const char *path, struct error *err) MUST_CHECK;
/* All of them are. */
enum status checkpoint_stand_warm(const char *dir, struct error *err) MUST_CHECK;

/* Opens and loads; seconds of both. ranks_here 0: alone. */
enum status checkpoint_stand_load(const char *dir, const struct layout_table *target, uint32_t rank,
                                  uint32_t ranks_here, void *const *pieces, double *seconds,
                                  struct error *err) MUST_CHECK;

/* Ranks as processes: each prepares, all begin together, the time is to the last one's end.
 * read_bytes: what all of them had the disks read. */
struct checkpoint_rank {
    void *(*prepare)(void *arg, uint32_t rank);
    bool (*run)(void *arg, uint32_t rank, void *prepared);
    void *arg;
};
enum status checkpoint_stand_ranks(const struct checkpoint_rank *what, uint32_t count,
                                   double *seconds, uint64_t *read_bytes,
                                   struct error *err) MUST_CHECK;

double checkpoint_stand_now(void);
/* argv in dir, its wall time. */
enum status checkpoint_stand_time(const char *const *argv, const char *dir, double *seconds,
                                  struct error *err) MUST_CHECK;
/* Bytes a second by fio, 4 MiB x 8 direct; 0 and a line on stderr when fio is not there. */
enum status checkpoint_stand_fio(const char *path, bool write, uint64_t bytes, double *rate,
                                 struct error *err) MUST_CHECK;
/* One line of checkpoint_rival.py: its seconds, its extra peak memory in MiB. false and a line on
 * stderr: there is no torch. */
bool checkpoint_stand_torch(const struct bench *bench, const char *const *args, double *seconds,
                            double *peak_mib);
