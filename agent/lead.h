/* lead.h - does rank 0 of a role need a head start?
 *
 * Pure, any thread. Ranks of torch meet at a port that rank 0 opens after seconds of imports, and
 * one that comes too early sleeps a second before it tries again: others are held back until it
 * listens. What is surely no such program, a binary whose command names neither Python nor torch,
 * starts at once. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum lead {
    LEAD_NONE,
    LEAD_NEEDED,
    LEAD_LOOK, /* the first bytes of the program tell: lead_of_head */
};
enum { LEAD_HEAD_BYTES = 256 };

enum lead lead_of_command(char *const *argv, size_t count);
/* The file's beginning: a script, for whatever interpreter, may end in Python. */
bool lead_of_head(const char *bytes, size_t len);
