/* device_probe.c - the child's main, and the line it prints. */
#include "agent/device_probe.h"
#include "agent/device.h"
#include "base/mem.h"
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define DEVICE_PROBE_SECONDS_MAX 900 /* longer than any deadline: for a parent that is stopped */

void device_probe_fini(struct device_probe *probe)
{
    mem_free(probe->devices);
    *probe = (struct device_probe){0};
}

struct device_probe_device *device_probe_add(struct device_probe *probe)
{
    if (probe->count == DEVICE_PROBE_DEVICES_MAX)
        return NULL;
    if ((probe->count & (probe->count - 1)) == 0)
        probe->devices = mem_resize(probe->devices, probe->count ? 2 * probe->count : 1,
                                    sizeof(*probe->devices));
    struct device_probe_device *device = &probe->devices[probe->count++];
    memset(device, 0, sizeof(*device));
    device->numa = -1;
    return device;
}

/* What vendors' libraries put into strings is not always text. */
static json_t *probe_text(const char *bytes)
{
    char clean[256];
    size_t len = 0;
    for (; bytes[len] && len < sizeof(clean) - 1; len++)
        clean[len] = (char)(bytes[len] >= ' ' && bytes[len] < 127 ? bytes[len] : '?');
    clean[len] = '\0';
    return json_string(clean);
}

static json_t *probe_device(const struct device_probe_device *device)
{
    json_t *object = json_object(), *processes = json_array();
    json_object_set_new(object, "index", json_integer(device->index));
    json_object_set_new(object, "uuid", probe_text(device->uuid));
    json_object_set_new(object, "model", probe_text(device->model));
    json_object_set_new(object, "memory_mib", json_integer((json_int_t)device->memory_mib));
    json_object_set_new(object, "numa", json_integer(device->numa));
    json_object_set_new(object, "faulty", json_boolean(device->faulty));
    json_object_set_new(object, "note", probe_text(device->note));
    for (size_t i = 0; i < device->processes_count; i++)
        json_array_append_new(processes, json_integer(device->processes[i]));
    json_object_set_new(object, "processes", processes);
    return object;
}

void device_probe_print(const struct device_probe *probe, struct text *out)
{
    json_t *object = json_object(), *devices = json_array();
    for (size_t i = 0; i < probe->count; i++)
        json_array_append_new(devices, probe_device(&probe->devices[i]));
    json_object_set_new(object, "devices", devices);
    json_object_set_new(object, "error", probe_text(probe->error));
    char *line = json_dumps(object, JSON_COMPACT);
    if (line)
        text_add(out, line);
    text_add(out, "\n");
    free(line);
    json_decref(object);
}

/* --- reading */

static bool probe_take_text(const json_t *object, const char *name, char *out, size_t cap)
{
    const char *value = json_string_value(json_object_get(object, name));
    if (!value || strlen(value) >= cap)
        return false;
    memcpy(out, value, strlen(value) + 1);
    return true;
}

static bool probe_take_number(const json_t *object, const char *name, json_int_t min,
                              json_int_t max, json_int_t *out)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max)
        return false;
    *out = json_integer_value(value);
    return true;
}

static bool probe_take_processes(const json_t *list, struct device_probe_device *device)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > DEVICE_PROBE_PROCESSES_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *pid = json_array_get(list, i);
        if (!json_is_integer(pid) || json_integer_value(pid) < 0 ||
            json_integer_value(pid) > UINT32_MAX)
            return false;
        device->processes[i] = (uint32_t)json_integer_value(pid);
    }
    device->processes_count = count;
    return true;
}

static bool probe_take_device(struct device_probe *probe, const json_t *object)
{
    json_int_t index = 0, memory_mib = 0, numa = 0;
    struct device_probe_device *device = device_probe_add(probe);
    if (!device || !json_is_object(object) ||
        !probe_take_number(object, "index", 0, UINT32_MAX, &index) ||
        !probe_take_number(object, "memory_mib", 0, INT64_MAX >> 20, &memory_mib) ||
        !probe_take_number(object, "numa", -1, 65535, &numa) ||
        !probe_take_text(object, "uuid", device->uuid, sizeof(device->uuid)) ||
        !probe_take_text(object, "model", device->model, sizeof(device->model)) ||
        !probe_take_text(object, "note", device->note, sizeof(device->note)) ||
        !probe_take_processes(json_object_get(object, "processes"), device))
        return false;
    device->index = (uint32_t)index;
    device->memory_mib = (uint64_t)memory_mib;
    device->numa = (int32_t)numa;
    device->faulty = json_is_true(json_object_get(object, "faulty"));
    for (size_t i = 0; i + 1 < probe->count; i++)
        if (probe->devices[i].index == device->index)
            return false;
    return true;
}

enum status device_probe_parse(const char *line, size_t len, struct device_probe *out,
                               struct error *err)
{
    struct device_probe probe = {0};
    json_t *object = len > 0 && len <= DEVICE_PROBE_LINE_MAX
                         ? json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL)
                         : NULL;
    const json_t *devices = json_object_get(object, "devices");
    bool good = json_is_array(devices) &&
                probe_take_text(object, "error", probe.error, sizeof(probe.error));
    for (size_t i = 0; good && i < json_array_size(devices); i++)
        good = probe_take_device(&probe, json_array_get(devices, i));
    json_decref(object);
    if (!good) {
        device_probe_fini(&probe);
        return error_set(err, STATUS_DATA_LOSS, "the probe's answer makes no sense");
    }
    *out = probe;
    return STATUS_OK;
}

int device_probe_main(const char *kind, const char *library)
{
    struct device_probe probe = {0};
    struct text line;
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return 1;
    alarm(DEVICE_PROBE_SECONDS_MAX);
    if (strcmp(kind, "cpu") == 0)
        device_probe_cpu(&probe, library);
    else if (strcmp(kind, "nvidia") == 0)
        device_probe_nvidia(&probe, library);
    else
        snprintf(probe.error, sizeof(probe.error), "no such kind of device");
    text_init(&line, DEVICE_PROBE_LINE_MAX);
    device_probe_print(&probe, &line);
    size_t at = 0;
    for (ssize_t sent; at < line.len; at += (size_t)sent)
        if ((sent = write(1, line.data + at, line.len - at)) <= 0)
            break;
    int code = at == line.len ? 0 : 1;
    text_fini(&line);
    device_probe_fini(&probe);
    return code;
}
