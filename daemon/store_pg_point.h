/* store_pg_point.h - reports of workers to blocks: many points of one series as one row.
 *
 * Loop thread. A set gathers one batch; it owns copies of the numbers. Series have a number in the
 * database, kept in a cache over batches: those not in it are asked for first (send_series), then
 * the blocks go out. Exact: doubles as their bits, integers as integers. */
#pragma once
#include "daemon/store_pg_link.h"
#include "proto/pb.h"

struct store_pg_point_cache;
struct store_pg_point_cache *store_pg_point_cache_create(size_t series_max);
void store_pg_point_cache_destroy(struct store_pg_point_cache *cache); /* NULL is fine */

struct store_pg_point_set;
struct store_pg_point_set *store_pg_point_create(struct store_pg_point_cache *cache);
void store_pg_point_destroy(struct store_pg_point_set *set); /* NULL is fine */
void store_pg_point_add(struct store_pg_point_set *set, const Pb__ReportBatch *batch);
size_t store_pg_point_count(const struct store_pg_point_set *set);
/* STATUS_EXHAUSTED: more than one transaction should carry. */
enum status store_pg_point_check(const struct store_pg_point_set *set,
                                 struct error *err) MUST_CHECK;
bool store_pg_point_unknown(const struct store_pg_point_set *set); /* has series without a number */
/* Within an op: asks for the numbers of unknown series. */
void store_pg_point_send_series(struct store_pg_point_set *set, struct store_pg_link *link);
void store_pg_point_series(struct store_pg_point_set *set, const PGresult *result);
void store_pg_point_learn(struct store_pg_point_set *set); /* they are committed: into the cache */
/* Within an op: blocks and counted losses. */
void store_pg_point_send(struct store_pg_point_set *set, struct store_pg_link *link);
