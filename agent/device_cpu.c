/* device_cpu.c - CPU slots: the hardware threads that we may use, with the NUMA node of each.
 *
 * hwloc loads plugins of vendors where they are installed, so it runs in the probe child only. */
#include "agent/device.h"
#include "agent/device_probe.h"
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CPU_NUMBERS_MAX 8192

/* Which CPUs we may use, by number. */
static size_t cpu_allowed(uint32_t *out)
{
    size_t size = CPU_ALLOC_SIZE(CPU_NUMBERS_MAX), count = 0;
    cpu_set_t *set = CPU_ALLOC(CPU_NUMBERS_MAX);
    if (set && sched_getaffinity(0, size, set) == 0)
        for (uint32_t cpu = 0; cpu < CPU_NUMBERS_MAX; cpu++)
            if (CPU_ISSET_S(cpu, size, set))
                out[count++] = cpu;
    if (set)
        CPU_FREE(set);
    if (count == 0)
        out[count++] = 0;
    return count;
}

static uint32_t cpu_of(const uint32_t *allowed, size_t count, uint32_t slot)
{
    for (size_t i = 0; i < count; i++)
        if (allowed[i] == slot)
            return slot;
    return allowed[slot % count];
}

uint32_t device_cpu_of_slot(uint32_t slot)
{
    uint32_t allowed[CPU_NUMBERS_MAX];
    size_t count = cpu_allowed(allowed);
    return cpu_of(allowed, count, slot);
}

static int32_t cpu_numa(hwloc_topology_t topology, uint32_t cpu)
{
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node));)
        if (node->cpuset && hwloc_bitmap_isset(node->cpuset, cpu))
            return (int32_t)node->os_index;
    return -1;
}

static void cpu_model(hwloc_topology_t topology, char *out, size_t cap)
{
    hwloc_obj_t package = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, NULL);
    const char *model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    snprintf(out, cap, "%.90s", model ? model : "cpu");
}

void device_probe_cpu(struct device_probe *probe, const char *slots)
{
    static uint32_t allowed[CPU_NUMBERS_MAX];
    hwloc_topology_t topology;
    size_t usable = cpu_allowed(allowed);
    unsigned long wanted = slots ? strtoul(slots, NULL, 10) : 0;
    bool known = hwloc_topology_init(&topology) == 0;
    if (known && hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        known = false;
    }
    size_t count = wanted > 0 ? wanted : usable;
    for (size_t i = 0; i < count; i++) {
        struct device_probe_device *device = device_probe_add(probe);
        if (!device)
            break;
        /* Numbers of CPUs as long as they last: a slot's index says where it is. */
        device->index = count <= usable ? allowed[i] : (uint32_t)i;
        snprintf(device->uuid, sizeof(device->uuid), "cpu-%u", device->index);
        if (!known)
            continue;
        device->numa = cpu_numa(topology, cpu_of(allowed, usable, device->index));
        cpu_model(topology, device->model, sizeof(device->model));
    }
    if (known)
        hwloc_topology_destroy(topology);
}
