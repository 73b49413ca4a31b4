/* device_probe.h - what a probe child says, from both ends: the vendors' code that runs in the
 * child only, and the line of JSON that it prints.
 *
 * Child side: device_probe_cpu, device_probe_nvidia fill an inventory; one thread, may block, crash
 * or hang. Agent side: device_probe_parse reads the line and trusts nothing in it. */
#pragma once
#include "base/error.h"
#include "base/text.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_PROBE_DEVICES_MAX   1024u
#define DEVICE_PROBE_PROCESSES_MAX 256u
#define DEVICE_PROBE_LINE_MAX      ((size_t)1 << 20)

struct device_probe_device {
    uint32_t index;
    char uuid[96], model[96], note[160];
    uint64_t memory_mib;
    int32_t numa;
    bool faulty;
    uint32_t processes[DEVICE_PROBE_PROCESSES_MAX]; /* that hold it */
    size_t processes_count;
};
struct device_probe {
    struct device_probe_device *devices; /* by index, no two alike */
    size_t count;
    char error[200]; /* empty: the answer is complete */
};

void device_probe_fini(struct device_probe *probe);
/* The next device, zeroed, with numa -1; NULL past the bound. */
struct device_probe_device *device_probe_add(struct device_probe *probe);
void device_probe_print(const struct device_probe *probe, struct text *out);
/* STATUS_DATA_LOSS when it is not such a line. */
enum status device_probe_parse(const char *line, size_t len, struct device_probe *out,
                               struct error *err) MUST_CHECK;

void device_probe_cpu(struct device_probe *probe, const char *slots);
void device_probe_nvidia(struct device_probe *probe, const char *library);
