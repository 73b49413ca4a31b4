/* shim_record.c - composing and saving records without the C library's printf. */
#include "agent/shim/shim_record.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void shim_record_add(struct shim_record *record, const char *piece)
{
    size_t len = strlen(piece);
    if (len > sizeof(record->text) - record->len)
        return; /* cannot happen: the request's bounds are below the record's */
    memcpy(record->text + record->len, piece, len);
    record->len += len;
}

void shim_record_begin(struct shim_record *record)
{
    record->len = 0;
    shim_record_number(record, "rondo-shim", SHIM_WIRE_VERSION);
}

void shim_record_text(struct shim_record *record, const char *key, const char *value)
{
    shim_record_add(record, key);
    shim_record_add(record, " ");
    shim_record_add(record, value);
    shim_record_add(record, "\n");
}

void shim_record_number(struct shim_record *record, const char *key, int64_t value)
{
    char digits[24], *at = digits + sizeof(digits) - 1;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    *at = '\0';
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0)
        *--at = '-';
    shim_record_text(record, key, at);
}

void shim_record_end(struct shim_record *record)
{
    shim_record_add(record, "end\n");
}

static bool shim_record_temp_name(char *out, size_t cap, const char *name)
{
    size_t len = strlen(name);
    if (len + sizeof(".tmp") > cap)
        return false;
    memcpy(out, name, len);
    memcpy(out + len, ".tmp", sizeof(".tmp"));
    return true;
}

static int shim_record_write(int dir, const char *temp, int flags, const char *bytes, size_t len)
{
    int fd = openat(dir, temp, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, 0644);
    if (fd < 0)
        return errno;
    for (size_t at = 0; at < len;) {
        ssize_t sent = write(fd, bytes + at, len - at);
        if (sent < 0 && errno != EINTR) {
            int err = errno;
            close(fd);
            return err;
        }
        if (sent > 0)
            at += (size_t)sent;
    }
    int cut = ftruncate(fd, (off_t)len) == 0 ? 0 : errno;
    close(fd);
    return cut;
}

int shim_record_reserve(int dir, const char *name)
{
    static const char zeros[SHIM_WIRE_RESERVE];
    char temp[32];
    if (!shim_record_temp_name(temp, sizeof(temp), name))
        return ENAMETOOLONG;
    return shim_record_write(dir, temp, O_TRUNC, zeros, sizeof(zeros));
}

int shim_record_save(const struct shim_record *record, int dir, const char *name)
{
    char temp[32];
    if (!shim_record_temp_name(temp, sizeof(temp), name))
        return ENAMETOOLONG;
    int err = shim_record_write(dir, temp, 0, record->text, record->len);
    if (err)
        return err;
    return renameat(dir, temp, dir, name) == 0 ? 0 : errno;
}

void shim_record_send(const struct shim_record *record, int fd)
{
    ssize_t sent;
    do
        sent = write(fd, record->text, record->len);
    while (sent < 0 && errno == EINTR);
}
