/* size_arg.h - sizes as people write them: "5GB", "512MiB", "1000". Pure; any thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* k, M, G, T: of 1000 (also with B behind); Ki, Mi, Gi, Ti: of 1024. False leaves *out alone. */
bool size_arg_parse(const char *text, uint64_t *out);
