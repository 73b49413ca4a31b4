/* reports.c - see reports.h. */
#include "worker/reports.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/digest.h"
#include "worker/wire.h"

#define CHECK_EVERY   256
#define DROPPED_FIELD 5u /* WorkerRecord.dropped */

/* Where the whole records end: a writer that was killed in the middle of one left the rest. Once
 * the agent has given blocks back, the file begins with a hole and is taken as it is. */
static off_t whole_end(int fd, off_t size)
{
    off_t at = lseek(fd, 0, SEEK_DATA);

    if (at != 0)
        return size;
    while (size - at >= WIRE_HEAD_BYTES) {
        unsigned char head[WIRE_HEAD_BYTES];
        uint32_t len;
        if (pread(fd, head, sizeof head, at) != (ssize_t)sizeof head)
            return size;
        len = wire_get_u32(head);
        if (len == 0 || len > REPORTS_RECORD_MAX || size - at - WIRE_HEAD_BYTES < (off_t)len)
            break;
        at += WIRE_HEAD_BYTES + (off_t)len;
    }
    return at;
}

int reports_open(struct reports *reports, int dir, _Atomic uint64_t *doorbell)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}; /* children do not inherit it */
    struct stat st;
    int fd = openat(dir, "reports", O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);

    if (fd < 0)
        return -errno;
    if (fcntl(fd, F_SETLK, &lock) != 0 || fstat(fd, &st) != 0) {
        int problem = errno == EACCES || errno == EAGAIN ? EWOULDBLOCK : errno;
        (void)close(fd);
        return -problem;
    }
    *reports = (struct reports){.fd = fd, .end = st.st_size, .doorbell = doorbell};
    if (st.st_size > 0) {
        reports->end = whole_end(fd, st.st_size);
        if (reports->end != st.st_size && ftruncate(fd, reports->end) != 0) {
            int problem = errno;
            reports_close(reports);
            return -problem;
        }
    }
    return 0;
}

static int is_over(struct reports *reports)
{
    struct stat st;

    if (reports->until_check-- > 0)
        return reports->over;
    reports->until_check = CHECK_EVERY;
    if (fstat(reports->fd, &st) == 0)
        reports->over = (int64_t)st.st_blocks * 512 > REPORTS_BYTES_MAX;
    return reports->over;
}

/* Whole, or not at all. */
static int append(struct reports *reports, unsigned char *record, size_t len)
{
    ssize_t wrote;

    wire_put_u32(record, (uint32_t)(len - WIRE_HEAD_BYTES));
    wire_put_u32(record + 4, digest_crc32c(0, record + WIRE_HEAD_BYTES, len - WIRE_HEAD_BYTES));
    do
        wrote = write(reports->fd, record, len);
    while (wrote < 0 && errno == EINTR);
    if (wrote != (ssize_t)len) {
        int problem = wrote < 0 ? errno : ENOSPC;
        if (wrote > 0 && ftruncate(reports->fd, reports->end) != 0)
            reports_close(reports); /* nothing may follow half a record */
        return -problem;
    }
    reports->end += (off_t)len;
    atomic_fetch_add(reports->doorbell, 1);
    return 0;
}

static int tell_untold(struct reports *reports)
{
    unsigned char record[WIRE_HEAD_BYTES + 16];
    struct wire wire;
    int problem;

    if (reports->untold == 0)
        return 0;
    wire_init(&wire, record + WIRE_HEAD_BYTES, sizeof record - WIRE_HEAD_BYTES);
    wire_add_number(&wire, DROPPED_FIELD, reports->untold);
    problem = append(reports, record, WIRE_HEAD_BYTES + wire.len);
    if (problem == 0)
        reports->untold = 0;
    return problem;
}

int reports_append(struct reports *reports, unsigned char *record, size_t len)
{
    int problem;

    if (reports->fd < 0)
        return -EBADF;
    problem = is_over(reports) ? -ENOSPC : tell_untold(reports);
    if (problem == 0)
        problem = append(reports, record, len);
    if (problem != 0)
        reports->dropped++;
    return problem;
}

void reports_close(struct reports *reports)
{
    if (reports->fd >= 0)
        (void)close(reports->fd);
    reports->fd = -1;
}
