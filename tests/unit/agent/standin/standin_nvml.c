/* standin_nvml.c - plays libnvidia-ml: as many GPUs as a file says, or a library in trouble.
 *
 * RONDO_STANDIN_NVML names a text file, read at nvmlInit; a line a GPU:
 *   <memory MiB> <state: ok, lost or remap> <pid>,<pid>,... (or -)
 * Built in four forms: as it is; STANDIN_HANGS: nvmlInit never returns; STANDIN_CRASHES: it hits an
 * address that is not there; STANDIN_LACKS: a function of the interface is missing. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT   __attribute__((visibility("default")))
#define GPUS_MAX 64

enum { OK = 0, INVALID = 2, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, UNKNOWN = 999 };

struct gpu {
    unsigned long long memory_mib;
    char state[16];
    unsigned pids[32];
    unsigned pids_count;
};
static struct gpu gpus[GPUS_MAX];
static unsigned gpus_count;

struct memory {
    unsigned long long total, free, used;
};
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT const char *nvmlErrorString(int result);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle);
EXPORT int nvmlDeviceGetUUID(void *handle, char *text, unsigned cap);
EXPORT int nvmlDeviceGetName(void *handle, char *text, unsigned cap);
EXPORT int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory);
EXPORT int nvmlDeviceGetRemappedRows(void *handle, unsigned *correctable, unsigned *uncorrectable,
                                     unsigned *pending, unsigned *failed);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count,
                                                   struct process *list);

static void read_gpus(void)
{
    const char *path = getenv("RONDO_STANDIN_NVML");
    FILE *file = path ? fopen(path, "re") : NULL;
    char pids[512];
    while (file && gpus_count < GPUS_MAX) {
        struct gpu *gpu = &gpus[gpus_count];
        if (fscanf(file, "%llu %15s %511s", &gpu->memory_mib, gpu->state, pids) != 3)
            break;
        char *save = NULL;
        for (char *pid = strtok_r(pids, ",-", &save); pid; pid = strtok_r(NULL, ",-", &save))
            gpu->pids[gpu->pids_count++] = (unsigned)strtoul(pid, NULL, 10);
        gpus_count++;
    }
    if (file)
        fclose(file);
}

int nvmlInit_v2(void)
{
#ifdef STANDIN_HANGS
    signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
#endif
#ifdef STANDIN_CRASHES
    signal(SIGSEGV, SIG_DFL); /* a sanitizer would catch it */
    raise(SIGSEGV);
#endif
    read_gpus();
    return getenv("RONDO_STANDIN_NVML") ? OK : UNKNOWN;
}

int nvmlShutdown(void)
{
    return OK;
}

const char *nvmlErrorString(int result)
{
    return result == GPU_IS_LOST ? "GPU is lost" : "Unknown Error";
}

#ifndef STANDIN_LACKS
int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = gpus_count;
    return OK;
}
#endif

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    if (index >= gpus_count)
        return INVALID;
    if (strcmp(gpus[index].state, "lost") == 0)
        return GPU_IS_LOST;
    *handle = &gpus[index];
    return OK;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned cap)
{
    snprintf(text, cap, "GPU-standin-%d", (int)((struct gpu *)handle - gpus));
    return OK;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned cap)
{
    (void)handle;
    snprintf(text, cap, "Stand-in \xff 9000"); /* not every driver's text is text */
    return OK;
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory)
{
    memory->total = ((struct gpu *)handle)->memory_mib << 20;
    memory->free = memory->total;
    memory->used = 0;
    return OK;
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *pending, unsigned *failed)
{
    *correctable = *uncorrectable = *pending = 0;
    *failed = strcmp(((struct gpu *)handle)->state, "remap") == 0;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *list)
{
    const struct gpu *gpu = handle;
    unsigned room = *count;
    *count = gpu->pids_count;
    for (unsigned i = 0; i < gpu->pids_count && i < room; i++)
        list[i] = (struct process){gpu->pids[i], 1 << 20, 0, 0};
    return gpu->pids_count > room ? INSUFFICIENT_SIZE : OK;
}
