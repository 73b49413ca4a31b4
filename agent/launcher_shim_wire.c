/* launcher_shim_wire.c - requests and records of the shim, from the agent's side. */
#include "agent/launcher_shim_wire.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little endian");

void launcher_shim_wire_begin(struct text *out)
{
    const struct shim_wire_header header = {.magic = SHIM_WIRE_MAGIC, .version = SHIM_WIRE_VERSION};
    text_init(out, SHIM_WIRE_REQUEST_MAX);
    text_add_bytes(out, &header, sizeof(header));
}

static void launcher_shim_wire_count(struct text *out)
{
    if (out->full)
        return;
    struct shim_wire_header header;
    memcpy(&header, out->data, sizeof(header));
    header.fields++;
    memcpy(out->data, &header, sizeof(header));
}

static void launcher_shim_wire_field(struct text *out, enum shim_wire_type type, uint16_t flags,
                                     const void *bytes, size_t len)
{
    const struct shim_wire_field field = {(uint16_t)type, flags, (uint32_t)len};
    if (len > SHIM_WIRE_REQUEST_MAX)
        out->full = true;
    text_add_bytes(out, &field, sizeof(field));
    if (len > 0)
        text_add_bytes(out, bytes, len);
    launcher_shim_wire_count(out);
}

void launcher_shim_wire_bytes(struct text *out, enum shim_wire_type type, const void *bytes,
                              size_t len)
{
    launcher_shim_wire_field(out, type, SHIM_WIRE_MUST, bytes, len);
}

void launcher_shim_wire_text_new(struct text *out, enum shim_wire_type type, const char *text)
{
    launcher_shim_wire_field(out, type, 0, text, strlen(text));
}

void launcher_shim_wire_text(struct text *out, enum shim_wire_type type, const char *text)
{
    launcher_shim_wire_bytes(out, type, text, strlen(text));
}

void launcher_shim_wire_number(struct text *out, enum shim_wire_type type, uint32_t number)
{
    launcher_shim_wire_bytes(out, type, &number, sizeof(number));
}

void launcher_shim_wire_strings(struct text *out, enum shim_wire_type type,
                                const char *const *strings)
{
    size_t total = 0, count = 0;
    for (; strings[count]; count++)
        total += strlen(strings[count]) + 1;
    if (count > SHIM_WIRE_STRINGS_MAX || total > SHIM_WIRE_REQUEST_MAX) {
        out->full = true;
        return;
    }
    const struct shim_wire_field field = {(uint16_t)type, SHIM_WIRE_MUST, (uint32_t)total};
    text_add_bytes(out, &field, sizeof(field));
    for (size_t i = 0; i < count; i++)
        text_add_bytes(out, strings[i], strlen(strings[i]) + 1);
    launcher_shim_wire_count(out);
}

enum status launcher_shim_wire_finish(struct text *out, struct error *err)
{
    if (out->full)
        return error_set(err, STATUS_EXHAUSTED,
                         "arguments and environment are over %llu bytes or %u strings",
                         (unsigned long long)SHIM_WIRE_REQUEST_MAX, SHIM_WIRE_STRINGS_MAX);
    struct shim_wire_header header;
    memcpy(&header, out->data, sizeof(header));
    header.length = out->len;
    memcpy(out->data, &header, sizeof(header));
    return STATUS_OK;
}

/* --- records */

struct launcher_shim_wire_key {
    const char *name;
    int64_t *number;
    char *text; /* or this, of cap bytes */
    size_t cap;
};

static bool launcher_shim_wire_take(const struct launcher_shim_wire_key *keys, const char *name,
                                    const char *value)
{
    for (const struct launcher_shim_wire_key *key = keys; key->name; key++) {
        if (strcmp(key->name, name) != 0)
            continue;
        if (key->number)
            return text_to_i64(value, INT64_MIN, INT64_MAX, key->number);
        if (strlen(value) >= key->cap)
            return false;
        memcpy(key->text, value, strlen(value) + 1);
        return true;
    }
    return true;
}

/* First line "rondo-shim <version>", last "end". */
static enum status launcher_shim_wire_parse(const char *bytes, size_t len,
                                            const struct launcher_shim_wire_key *keys,
                                            struct error *err)
{
    char copy[SHIM_WIRE_RECORD_MAX + 1], *save = NULL;
    static const char first[] = "rondo-shim ";
    if (len < 4 || len > SHIM_WIRE_RECORD_MAX || memchr(bytes, 0, len) ||
        memcmp(bytes + len - 4, "end\n", 4) != 0 || memcmp(bytes, first, sizeof(first) - 1) != 0)
        return error_set(err, STATUS_DATA_LOSS, "a shim's record is incomplete");
    memcpy(copy, bytes, len);
    copy[len] = '\0';
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *value = strchr(line, ' ');
        if (!value)
            continue;
        *value++ = '\0';
        if (!launcher_shim_wire_take(keys, line, value))
            return error_set(err, STATUS_DATA_LOSS, "a shim's record has a bad %s", line);
    }
    return STATUS_OK;
}

static bool launcher_shim_wire_is_pid(int64_t pid)
{
    return pid > 1 && pid <= INT32_MAX;
}

enum status launcher_shim_wire_pid(const char *bytes, size_t len, struct launcher_shim_pid *out,
                                   struct error *err)
{
    struct launcher_shim_pid pid = {0};
    int64_t shim = 0, worker = 0;
    const struct launcher_shim_wire_key keys[] = {
        {"boot_id", NULL, pid.boot_id, sizeof(pid.boot_id)},
        {"shim_pid", &shim, NULL, 0},
        {"shim_start", &pid.shim_start, NULL, 0},
        {"worker_pid", &worker, NULL, 0},
        {"worker_start", &pid.worker_start, NULL, 0},
        {"started_us", &pid.started_us, NULL, 0},
        {"cgroup2", NULL, pid.cgroup2, sizeof(pid.cgroup2)},
        {"cgroup1", NULL, pid.cgroup1, sizeof(pid.cgroup1)},
        {"cgroup_pids", NULL, pid.cgroup_pids, sizeof(pid.cgroup_pids)},
        {"tag", NULL, pid.tag, sizeof(pid.tag)},
        {NULL, NULL, NULL, 0},
    };
    enum status st = launcher_shim_wire_parse(bytes, len, keys, err);
    if (st != STATUS_OK)
        return st;
    if (!launcher_shim_wire_is_pid(shim) || !launcher_shim_wire_is_pid(worker))
        return error_set(err, STATUS_DATA_LOSS, "a shim's record names no process");
    pid.shim = (pid_t)shim;
    pid.worker = (pid_t)worker;
    *out = pid;
    return STATUS_OK;
}

enum status launcher_shim_wire_exit(const char *bytes, size_t len, struct launcher_shim_exit *out,
                                    struct error *err)
{
    int64_t stage = -1, exec_errno = 0, code = 0, signal = 0, gone = 0, ended_us = 0, rss_kib = 0;
    const struct launcher_shim_wire_key keys[] = {
        {"stage", &stage, NULL, 0},     {"exec_errno", &exec_errno, NULL, 0},
        {"code", &code, NULL, 0},       {"signal", &signal, NULL, 0},
        {"gone", &gone, NULL, 0},       {"ended_us", &ended_us, NULL, 0},
        {"rss_kib", &rss_kib, NULL, 0}, {NULL, NULL, NULL, 0},
    };
    enum status st = launcher_shim_wire_parse(bytes, len, keys, err);
    if (st != STATUS_OK)
        return st;
    if (stage < 0 || stage > 1000 || code < 0 || code > 255 || signal < 0 || signal > 128)
        return error_set(err, STATUS_DATA_LOSS, "a shim's record has no exit status");
    *out = (struct launcher_shim_exit){(int)stage, (int)exec_errno, (int)code, (int)signal,
                                       gone != 0,  ended_us,        rss_kib};
    return STATUS_OK;
}

enum status launcher_shim_wire_read(const char *dir, const char *name, char *bytes, size_t *len,
                                    struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE,
                         "open %s: %s", path, strerror(errno));
    struct stat st;
    bool ours = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
                (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
    ssize_t got = ours ? pread(fd, bytes, SHIM_WIRE_RECORD_MAX, 0) : -1;
    close(fd);
    if (!ours)
        return error_set(err, STATUS_DENIED, "%s is not a file of ours", path);
    if (got < 0)
        return error_set(err, STATUS_UNAVAILABLE, "read %s: %s", path, strerror(errno));
    *len = (size_t)got;
    return STATUS_OK;
}

void launcher_shim_wire_explain(const struct launcher_shim_exit *record, const char *program,
                                const char *cwd, const char *user, struct text *out)
{
    static const char *const stages[] = {
        [SHIM_STAGE_REQUEST] = "read the request",
        [SHIM_STAGE_FILES] = "create the log files and records",
        [SHIM_STAGE_FORK] = "create the process",
        [SHIM_STAGE_CGROUP] = "enter the cgroup",
        [SHIM_STAGE_LIMITS] = "set resource limits",
        [SHIM_STAGE_AFFINITY] = "bind to its CPUs",
        [SHIM_STAGE_USER] = "become its user",
        [SHIM_STAGE_CHDIR] = "change directory to",
        [SHIM_STAGE_EXEC] = "run",
    };
    const size_t stage = (size_t)record->stage;
    const char *what = stage < COUNT_OF(stages) && stages[stage] ? stages[stage] : "start";
    if (stage == SHIM_STAGE_EXEC)
        text_addf(out, "%s %s: %s", what, program, strerror(record->exec_errno));
    else if (stage == SHIM_STAGE_CHDIR)
        text_addf(out, "%s %s: %s", what, cwd, strerror(record->exec_errno));
    else
        text_addf(out, "%s: %s", what, strerror(record->exec_errno));
    bool as_user = stage == SHIM_STAGE_CHDIR || stage == SHIM_STAGE_EXEC;
    if (user && as_user && (record->exec_errno == EACCES || record->exec_errno == EPERM))
        text_addf(out, " (as %s)", user);
}
