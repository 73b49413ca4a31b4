/* test_sock.c - workers' sockets: whole frames, broken ones, many connections, a stale file. */
#include "agent/sock.h"
#include "base/loop.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct scene {
    struct loop *loop;
    struct socks *socks;
    struct sock *sock;
    char *dir, *path;
    enum status opened;
    bool was_opened;
    uint64_t connection;
    unsigned asks, wanted;
    struct loop_timer *poll;
};

static void scene_opened(void *arg, enum status st, const struct error *err)
{
    struct scene *scene = arg;
    (void)err;
    scene->opened = st;
    scene->was_opened = true;
    loop_uv_stop(scene->loop);
}

static void scene_ask(void *arg, uint64_t connection, const Pb__WorkerAsk *ask)
{
    struct scene *scene = arg;
    Pb__WorkerAnswer answer = PB__WORKER_ANSWER__INIT;
    answer.has_number = true;
    answer.number = ask->number;
    scene->connection = connection;
    scene->sock->ops->answer(scene->sock, connection, &answer);
    if (++scene->asks == scene->wanted)
        loop_uv_stop(scene->loop);
}

static const struct sock_events scene_events = {scene_opened, scene_ask};

static void scene_tick(void *arg)
{
    loop_uv_stop(((struct scene *)arg)->loop);
}

static void run_for(struct scene *scene, int64_t us)
{
    loop_timer_set(scene->poll, us);
    loop_uv_run(scene->loop);
    loop_timer_stop(scene->poll);
}

static int scene_setup_with(void **state, uint32_t spares)
{
    struct scene *scene = NEW(struct scene);
    scene->loop = loop_uv_create();
    scene->dir = unit_dir_create();
    SCOPED_TEXT char *deep = mem_printf("%s/%0120d", scene->dir, 7); /* past a socket's limit */
    assert_int_equal(mkdir(deep, 0700), 0);
    scene->path = mem_printf("%s/sock", deep);
    unit_write(scene->path, "stale");
    scene->poll = loop_timer_create(scene->loop, scene_tick, scene);
    SCOPED_TEXT char *spare_dir = mem_printf("%s/spare", scene->dir);
    scene->socks = sock_uv_create(scene->loop, spare_dir, spares);
    for (uint32_t i = 1; i <= spares; i++) {
        SCOPED_TEXT char *one = mem_printf("%s/%u", spare_dir, i);
        while (access(one, F_OK) != 0)
            run_for(scene, 5000);
    }
    run_for(scene, 5000); /* the last one is on the list */
    scene->sock = scene->socks->ops->open(scene->socks, scene->path, -1, -1, &scene_events, scene);
    assert_false(scene->was_opened);
    loop_uv_run(scene->loop);
    assert_int_equal(scene->opened, STATUS_OK);
    SCOPED_TEXT char *first = mem_printf("%s/1", spare_dir);
    assert_int_equal(access(first, F_OK), -1); /* none was made, or it was renamed */
    *state = scene;
    return 0;
}

static int scene_setup(void **state)
{
    return scene_setup_with(state, 0);
}

static int scene_setup_spares(void **state)
{
    return scene_setup_with(state, 2);
}

static int scene_teardown(void **state)
{
    struct scene *scene = *state;
    scene->sock->ops->close(scene->sock);
    scene->socks->ops->destroy(scene->socks);
    run_for(scene, 1000);
    loop_timer_destroy(scene->poll);
    loop_uv_destroy(scene->loop);
    mem_free(scene->path);
    unit_dir_destroy(scene->dir);
    mem_free(scene);
    return 0;
}

static int reach(struct scene *scene)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    SCOPED_TEXT char *parent = mem_printf("%.*s", (int)(strlen(scene->path) - 5), scene->path);
    int dir = open(parent, O_RDONLY | O_DIRECTORY), fd = socket(AF_UNIX, SOCK_STREAM, 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/sock", dir);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(dir);
    return fd;
}

static size_t frame(uint64_t number, uint8_t *out)
{
    Pb__WorkerAsk ask = PB__WORKER_ASK__INIT;
    ask.has_number = ask.has_kind = true;
    ask.number = number;
    ask.kind = PB__WORKER_ASK__KIND__JOIN;
    size_t len = pb__worker_ask__pack(&ask, out + 4);
    memset(out, 0, 4);
    out[0] = (uint8_t)len;
    return len + 4;
}

static void frames_come_whole_however_they_are_cut(void **state)
{
    struct scene *scene = *state;
    uint8_t bytes[256], answer[64];
    int fd = reach(scene);
    size_t len = frame(1, bytes);
    len += frame(2, bytes + len);
    scene->wanted = 2;
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(write(fd, bytes + i, 1), 1);
        if (i + 1 < len)
            run_for(scene, 500);
    }
    loop_uv_run(scene->loop);
    run_for(scene, 5000);
    assert_int_equal(read(fd, answer, sizeof(answer)), 12); /* two answers */
    close(fd);
}

static void garbage_ends_its_connection_alone(void **state)
{
    struct scene *scene = *state;
    static const char *const bad[] = {"\xff\xff\xff\x7f", "\x04\0\0\0\xff\xff\xff\xff"};
    static const size_t lens[] = {4, 8};
    uint8_t bytes[64];
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        int fd = reach(scene);
        char byte;
        assert_int_equal(write(fd, bad[i], lens[i]), lens[i]);
        run_for(scene, 50000);
        assert_int_equal(read(fd, &byte, 1), 0);
        close(fd);
    }
    int fd = reach(scene);
    scene->wanted = scene->asks + 1;
    size_t len = frame(3, bytes);
    assert_int_equal(write(fd, bytes, len), len);
    loop_uv_run(scene->loop);
    close(fd);
}

static void connections_are_bounded(void **state)
{
    struct scene *scene = *state;
    int fds[20];
    uint8_t bytes[64];
    for (int i = 0; i < 20; i++) {
        fds[i] = reach(scene);
        run_for(scene, 2000);
    }
    char byte;
    assert_int_equal(recv(fds[19], &byte, 1, 0), 0);
    scene->wanted = 1;
    size_t len = frame(4, bytes);
    assert_int_equal(write(fds[0], bytes, len), len);
    loop_uv_run(scene->loop);
    for (int i = 0; i < 20; i++)
        close(fds[i]);
}

/* What a worker asks beyond its share waits in its socket; nothing is lost. */
static void a_flood_of_asks_is_read_slowly(void **state)
{
    enum { FLOOD = 200 };
    struct scene *scene = *state;
    uint8_t bytes[64 * FLOOD];
    size_t len = 0;
    for (int i = 0; i < FLOOD; i++)
        len += frame((uint64_t)i + 1, bytes + len);
    int fds[2] = {reach(scene), reach(scene)};
    for (int i = 0; i < 2; i++)
        assert_int_equal(write(fds[i], bytes, len), len);
    while (scene->asks == 0)
        run_for(scene, 50000);
    assert_in_range(scene->asks, 1, 128); /* a window may have begun meanwhile */
    int late = reach(scene);
    assert_int_equal(write(late, bytes, len), len);
    scene->wanted = 3 * FLOOD;
    loop_uv_run(scene->loop);
    for (int i = 0; i < 2; i++)
        close(fds[i]);
    close(late);
}

/* Others that flood, one after the other, do not put off the end of its window. */
static void each_waits_for_its_own_window(void **state)
{
    enum { FLOOD = 200, OTHERS = 60 };
    struct scene *scene = *state, others[OTHERS];
    uint8_t bytes[64 * FLOOD];
    size_t len = 0;
    int fds[OTHERS + 1], count = 0;
    for (int i = 0; i < FLOOD; i++)
        len += frame((uint64_t)i + 1, bytes + len);
    fds[OTHERS] = reach(scene);
    assert_int_equal(write(fds[OTHERS], bytes, len), len);
    for (; count < OTHERS && scene->asks < FLOOD; count++) {
        struct scene *other = &others[count];
        *other = (struct scene){.loop = scene->loop, .dir = scene->dir};
        SCOPED_TEXT char *dir = mem_printf("%s/%d", scene->dir, count);
        assert_int_equal(mkdir(dir, 0700), 0);
        other->path = mem_printf("%s/sock", dir);
        other->sock =
            scene->socks->ops->open(scene->socks, other->path, -1, -1, &scene_events, other);
        while (!other->was_opened)
            loop_uv_run(scene->loop);
        fds[count] = reach(other);
        assert_int_equal(write(fds[count], bytes, len), len);
        run_for(scene, 100000);
    }
    assert_int_equal(scene->asks, FLOOD);
    close(fds[OTHERS]);
    for (int i = 0; i < count; i++) {
        others[i].sock->ops->close(others[i].sock);
        mem_free(others[i].path);
        close(fds[i]);
    }
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, scene_setup, scene_teardown)
#define SPARE(fn)                                                                                  \
    {                                                                                              \
        "spare_" #fn, fn, scene_setup_spares, scene_teardown, NULL                                 \
    } /* by a socket bound in advance */
    const struct CMUnitTest tests[] = {
        T(frames_come_whole_however_they_are_cut),
        T(garbage_ends_its_connection_alone),
        T(connections_are_bounded),
        T(a_flood_of_asks_is_read_slowly),
        T(each_waits_for_its_own_window),
        SPARE(frames_come_whole_however_they_are_cut),
        SPARE(connections_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
