/* mutate.h - a well-formed document with changes that the fuzzer's bytes describe: what a parser
 * sees only behind its first checks.
 *
 * Pure. Input bytes are a list of edits of five bytes each: what to do, where (two bytes), two
 * operands. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define MUTATE_EDITS_MAX 64

/* Applies the edits to document (*len of cap bytes). */
void mutate_apply(const uint8_t *edits, size_t size, uint8_t *document, size_t *len, size_t cap);
/* Numbers of a fixed sequence for each seed. */
uint64_t mutate_random(uint64_t *seed);
