/* text_unit.h - "90s", "1h30m", "4GiB": amounts with units, exact.
 *
 * Any thread; pure. The unit of a field is in its name: ..._ms, ..._s, ..._mib (a "_max" behind it
 * is ignored). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum text_unit { TEXT_UNIT_NONE, TEXT_UNIT_MS, TEXT_UNIT_S, TEXT_UNIT_MIB };

enum text_unit text_unit_of(const char *field_name);
/* False when malformed, too large, or not a whole number of the unit. A bare number is not for
 * here. */
bool text_unit_parse(enum text_unit unit, const char *bytes, size_t len, uint64_t *out);
/* "500ms, 30s, 10m, 2h, 1h30m, 1d": for messages. */
const char *text_unit_examples(enum text_unit unit);
