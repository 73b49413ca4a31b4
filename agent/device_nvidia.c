/* device_nvidia.c - NVIDIA's GPUs by libnvidia-ml, in the probe child only.
 *
 * The library is found at run time; of its interface only the functions below are used, declared
 * here by their published binary interface, and each that is not in every driver has a fallback. */
#include "agent/device_probe.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NVIDIA_SUCCESS           0
#define NVIDIA_INSUFFICIENT_SIZE 7
#define NVIDIA_BUS_ID_MAX        32

typedef int nvidia_result;
typedef void *nvidia_handle;
struct nvidia_memory {
    unsigned long long total, free, used;
};
struct nvidia_pci { /* third form */
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[NVIDIA_BUS_ID_MAX];
};
struct nvidia_process_old { /* first form */
    unsigned pid;
    unsigned long long used;
};
struct nvidia_process { /* second and third form */
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

struct nvidia {
    void *library;
    nvidia_result (*init)(void);
    nvidia_result (*shutdown)(void);
    const char *(*error_text)(nvidia_result result);
    nvidia_result (*count)(unsigned *count);
    nvidia_result (*handle)(unsigned index, nvidia_handle *handle);
    nvidia_result (*uuid)(nvidia_handle handle, char *text, unsigned cap);
    nvidia_result (*name)(nvidia_handle handle, char *text, unsigned cap);
    nvidia_result (*memory)(nvidia_handle handle, struct nvidia_memory *memory);
    /* these may be missing */
    nvidia_result (*pci)(nvidia_handle handle, struct nvidia_pci *pci);
    nvidia_result (*remapped)(nvidia_handle handle, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *pending, unsigned *failed);
    nvidia_result (*processes[3])(nvidia_handle handle, unsigned *count, void *list);
    size_t process_size[3];
};

/* POSIX guarantees that a function's address fits; C knows no cast for it. */
static bool nvidia_symbol(const struct nvidia *nv, const char *name, void *place)
{
    void *address = dlsym(nv->library, name);
    if (!address)
        return false;
    memcpy(place, &address, sizeof(address));
    return true;
}

static bool nvidia_load(struct nvidia *nv, const char *path, char *error, size_t cap)
{
    const struct {
        const char *name;
        void *place;
    } needed[] = {
        {"nvmlInit_v2", &nv->init},
        {"nvmlShutdown", &nv->shutdown},
        {"nvmlErrorString", &nv->error_text},
        {"nvmlDeviceGetCount_v2", &nv->count},
        {"nvmlDeviceGetHandleByIndex_v2", &nv->handle},
        {"nvmlDeviceGetUUID", &nv->uuid},
        {"nvmlDeviceGetName", &nv->name},
        {"nvmlDeviceGetMemoryInfo", &nv->memory},
    };
    nv->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!nv->library) {
        snprintf(error, cap, "%.190s", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (!nvidia_symbol(nv, needed[i].name, needed[i].place)) {
            snprintf(error, cap, "%.100s has no %s", path, needed[i].name);
            return false;
        }
    nvidia_symbol(nv, "nvmlDeviceGetPciInfo_v3", &nv->pci);
    nvidia_symbol(nv, "nvmlDeviceGetRemappedRows", &nv->remapped);
    return true;
}

/* Three kinds of users of a GPU, each in the newest form the driver has. */
static bool nvidia_load_processes(struct nvidia *nv, char *error, size_t cap)
{
    static const char *const kinds[] = {"nvmlDeviceGetComputeRunningProcesses",
                                        "nvmlDeviceGetGraphicsRunningProcesses",
                                        "nvmlDeviceGetMPSComputeRunningProcesses"};
    static const char *const forms[] = {"_v3", "_v2", ""};
    for (size_t kind = 0; kind < 3; kind++)
        for (size_t form = 0; form < 3 && !nv->processes[kind]; form++) {
            char name[80];
            snprintf(name, sizeof(name), "%s%s", kinds[kind], forms[form]);
            if (nvidia_symbol(nv, name, &nv->processes[kind]))
                nv->process_size[kind] =
                    form < 2 ? sizeof(struct nvidia_process) : sizeof(struct nvidia_process_old);
        }
    if (!nv->processes[0])
        snprintf(error, cap, "the library has no %s: emptiness cannot be proven", kinds[0]);
    return nv->processes[0] != NULL;
}

static void nvidia_fault(const struct nvidia *nv, struct device_probe_device *device,
                         const char *what, nvidia_result result)
{
    const char *text = nv->error_text(result);
    device->faulty = true;
    snprintf(device->note, sizeof(device->note), "%s: %.100s", what, text ? text : "unknown error");
}

/* "00000000:3B:00.0" as the driver writes it is 0000:3b:00.0 in sysfs. */
static int32_t nvidia_numa(const char *bus_id)
{
    char path[96], line[32] = "";
    unsigned domain, bus, slot, function;
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        return -1;
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:%02x.%x/numa_node",
             domain & 0xffff, bus & 0xff, slot & 0xff, function & 0xf);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    long node = fgets(line, sizeof(line), file) ? strtol(line, NULL, 10) : -1;
    fclose(file);
    return node >= 0 && node < 65536 ? (int32_t)node : -1;
}

static void nvidia_add_processes(const struct nvidia *nv, nvidia_handle handle, size_t kind,
                                 struct device_probe_device *device)
{
    _Alignas(16) static char list[2 * DEVICE_PROBE_PROCESSES_MAX * sizeof(struct nvidia_process)];
    unsigned count = DEVICE_PROBE_PROCESSES_MAX;
    if (!nv->processes[kind])
        return;
    nvidia_result result = nv->processes[kind](handle, &count, list);
    if (result != NVIDIA_SUCCESS && result != NVIDIA_INSUFFICIENT_SIZE) {
        if (kind == 0) /* the others are not offered by every driver and device */
            nvidia_fault(nv, device, "list its processes", result);
        return;
    }
    if (count > DEVICE_PROBE_PROCESSES_MAX)
        count = DEVICE_PROBE_PROCESSES_MAX;
    for (unsigned i = 0; i < count && device->processes_count < DEVICE_PROBE_PROCESSES_MAX; i++) {
        unsigned pid;
        memcpy(&pid, list + i * nv->process_size[kind], sizeof(pid));
        device->processes[device->processes_count++] = pid;
    }
}

static void nvidia_device(const struct nvidia *nv, unsigned index,
                          struct device_probe_device *device)
{
    struct nvidia_memory memory = {0};
    struct nvidia_pci pci;
    nvidia_handle handle = NULL;
    unsigned correctable = 0, uncorrectable = 0, pending = 0, failed = 0;
    device->index = index;
    nvidia_result result = nv->handle(index, &handle);
    if (result != NVIDIA_SUCCESS) {
        nvidia_fault(nv, device, "open the device", result);
        return;
    }
    if ((result = nv->uuid(handle, device->uuid, sizeof(device->uuid))) != NVIDIA_SUCCESS)
        nvidia_fault(nv, device, "read its UUID", result);
    if ((result = nv->name(handle, device->model, sizeof(device->model))) != NVIDIA_SUCCESS)
        nvidia_fault(nv, device, "read its name", result);
    if ((result = nv->memory(handle, &memory)) != NVIDIA_SUCCESS)
        nvidia_fault(nv, device, "read its memory", result);
    device->uuid[sizeof(device->uuid) - 1] = device->model[sizeof(device->model) - 1] = '\0';
    device->memory_mib = memory.total >> 20;
    memset(&pci, 0, sizeof(pci));
    if (nv->pci && nv->pci(handle, &pci) == NVIDIA_SUCCESS) {
        pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
        device->numa = nvidia_numa(pci.bus_id);
    }
    if (nv->remapped &&
        nv->remapped(handle, &correctable, &uncorrectable, &pending, &failed) == NVIDIA_SUCCESS &&
        failed) {
        device->faulty = true;
        snprintf(device->note, sizeof(device->note), "remapping of a memory row failed");
    }
    for (size_t kind = 0; kind < 3; kind++)
        nvidia_add_processes(nv, handle, kind, device);
}

void device_probe_nvidia(struct device_probe *probe, const char *library)
{
    struct nvidia nv = {0};
    unsigned count = 0;
    const char *path = library && *library ? library : "libnvidia-ml.so.1";
    if (!nvidia_load(&nv, path, probe->error, sizeof(probe->error))) {
        if (!nv.library && path != library)
            probe->error[0] = '\0'; /* nobody said there was one: a machine without GPUs */
        return;
    }
    if (!nvidia_load_processes(&nv, probe->error, sizeof(probe->error)))
        return;
    nvidia_result result = nv.init();
    if (result == NVIDIA_SUCCESS)
        result = nv.count(&count);
    if (result != NVIDIA_SUCCESS) {
        const char *text = nv.error_text(result);
        snprintf(probe->error, sizeof(probe->error), "%.100s: %.80s", path,
                 text ? text : "unknown error");
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        struct device_probe_device *device = device_probe_add(probe);
        if (!device)
            break;
        nvidia_device(&nv, i, device);
    }
    nv.shutdown();
}
