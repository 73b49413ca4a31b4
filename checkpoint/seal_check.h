/* seal_check.h - do a part's shard files hold what the storage layout says of its rank: the names,
 * dtypes, shapes and places, all of them and nothing else?
 *
 * The last check before a part may be sealed, and the first of an offline verification. Headers
 * alone are read: whether the bytes behind them are whole, the digests say. Blocking; any thread.
 * Parts belong to workers, who may put anything there. */
#pragma once
#include "checkpoint/layout.h"

/* dir: the part's directory; names: of its files, as its manifest or its slot lists them; files
 * other than *.safetensors are left alone. STATUS_DATA_LOSS names the file and the tensor. */
enum status seal_check_part(int dir, const char *const *names, size_t count,
                            const struct layout_table *storage, uint32_t rank,
                            struct error *err) MUST_CHECK;
