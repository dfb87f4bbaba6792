/* The load of `bench.load` for Majordomo 0.2, in C: it takes as little as possible of the machine from
 * the broker that is measured.
 *
 *     mdp_load worker PORT WORKERS SIZE           all workers, a socket each; prints "ready"
 *     mdp_load client PORT WINDOW SIZE WARM_UP_S SECONDS REQUESTS BROKER_PID WORKERS_PID
 *
 * The client keeps WINDOW requests of SIZE bytes in flight on one connection, and prints its figures
 * as JSON. It speaks ZMTP 3.0 (RFC 23, NULL) without libzmq. Of a reply only the kind and the size of
 * the body are compared. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 18, FRAMES_MAX = 16, LATENCIES_MAX = 1 << 20, MORE = 1, LONG = 2, COMMAND = 4 };

struct frame { const unsigned char *data; size_t size; };
struct peer { int fd; bool spoke; size_t held; unsigned char *data; }; /* `held` bytes not parsed */
struct output { unsigned char *data; size_t size, room; };

static size_t body_size;
static unsigned char *body;

static void must(bool done, const char *what) {
    if (done) return;
    perror(what);
    exit(1);
}

static double seconds_of(clockid_t clock) {
    struct timespec t;
    must(clock_gettime(clock, &t) == 0, "the clock of a process");
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_s(pid_t pid) { /* all threads, user and system */
    clockid_t clock;
    must(clock_getcpuclockid(pid, &clock) == 0, "the clock of a process");
    return seconds_of(clock);
}

/* --- ZMTP -------------------------------------------------------------------------------------- */
static void append(struct output *out, const void *data, size_t size) {
    if (out->size + size > out->room) {
        out->room = 2 * (out->size + size);
        must((out->data = realloc(out->data, out->room)) != NULL, "memory");
    }
    if (size > 0) memcpy(out->data + out->size, data, size);
    out->size += size;
}

static void append_frame(struct output *out, const void *data, size_t size, bool more) {
    unsigned char head[9] = {more ? MORE : 0, (unsigned char)size};
    if (size > 255) {
        head[0] |= LONG;
        for (int n = 0; n < 8; n++) head[1 + n] = (unsigned char)((uint64_t)size >> (56 - 8 * n));
    }
    append(out, head, size > 255 ? 9 : 2);
    append(out, data, size);
}

static void send_all(int fd, struct output *out) {
    for (size_t at = 0; at < out->size;) {
        ssize_t sent = send(fd, out->data + at, out->size - at, MSG_NOSIGNAL);
        must(sent > 0, "send");
        at += (size_t)sent;
    }
    out->size = 0;
}

static void receive_exactly(int fd, unsigned char *data, size_t size) {
    must(recv(fd, data, size, MSG_WAITALL) == (ssize_t)size, "handshake");
}

static struct peer connect_to(int port) {
    static const char ready[] = "\4\34\5READY\13Socket-Type\0\0\0\6DEALER";
    unsigned char greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct peer peer = {.fd = socket(AF_INET, SOCK_STREAM, 0), .data = malloc(BUFFER)};
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(peer.data != NULL, "memory");
    must(connect(peer.fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    must(setsockopt(peer.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
    struct output out = {0};
    append(&out, greeting, sizeof greeting);
    append(&out, ready, sizeof ready - 1);
    send_all(peer.fd, &out);
    free(out.data);
    receive_exactly(peer.fd, greeting, sizeof greeting);
    receive_exactly(peer.fd, greeting, 2);
    must(greeting[0] == COMMAND && greeting[1] <= sizeof greeting, "READY");
    receive_exactly(peer.fd, greeting, greeting[1]);
    return peer;
}

/* Read once, and pass each complete message to `take`. */
static void take_in(struct peer *peer, void (*take)(struct frame *, int)) {
    ssize_t got = recv(peer->fd, peer->data + peer->held, BUFFER - peer->held, 0);
    must(got > 0, "receive");
    size_t end = peer->held + (size_t)got, begun = 0;
    struct frame frames[FRAMES_MAX];
    int count = 0;
    for (size_t at = 0; at + 2 <= end;) {
        unsigned char flags = peer->data[at];
        size_t head = flags & LONG ? 9 : 2, size = peer->data[at + 1];
        if (at + head > end) break;
        if (flags & LONG)
            for (size_t n = size = 0; n < 8; n++) size = size << 8 | peer->data[at + 1 + n];
        if (at + head + size > end) break;
        must(count < FRAMES_MAX && !(flags & COMMAND), "a message");
        frames[count++] = (struct frame){peer->data + at + head, size};
        at += head + size;
        if (!(flags & MORE)) {
            take(frames, count);
            count = 0;
            begun = at;
        }
    }
    peer->held = end - begun;
    must(peer->held < BUFFER, "a message larger than the buffer");
    memmove(peer->data, peer->data + begun, peer->held);
}

static bool is(struct frame frame, const char *text, size_t size) {
    return frame.size == size && memcmp(frame.data, text, size) == 0;
}

/* --- workers ----------------------------------------------------------------------------------- */
static struct output replies;

static void answer(struct frame *frames, int count) {
    must(count > 1 && is(frames[0], "MDPW02", 6), "a message for a worker");
    if (is(frames[1], "\5", 1)) return; /* a heartbeat */
    must(is(frames[1], "\2", 1) && count == 5 && frames[4].size == body_size, "a request");
    append_frame(&replies, "MDPW02", 6, true);
    append_frame(&replies, "\4", 1, true);
    append_frame(&replies, frames[2].data, frames[2].size, true);
    append_frame(&replies, "", 0, true);
    append_frame(&replies, body, body_size, false);
}

static void serve(int port, int count) {
    struct peer *peers = calloc((size_t)count, sizeof *peers);
    struct epoll_event ready[64];
    struct output out = {0};
    int epoll = epoll_create1(0);
    must(peers != NULL && epoll >= 0, "epoll");
    for (int n = 0; n < count; n++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)n};
        peers[n] = connect_to(port);
        append_frame(&out, "MDPW02", 6, true);
        append_frame(&out, "\1", 1, true);
        append_frame(&out, "echo", 4, false);
        send_all(peers[n].fd, &out);
        must(epoll_ctl(epoll, EPOLL_CTL_ADD, peers[n].fd, &event) == 0, "epoll");
    }
    puts("ready");
    fflush(stdout);
    for (double beat_at = seconds_of(CLOCK_MONOTONIC) + 1;;) {
        int number = epoll_wait(epoll, ready, 64, 1000);
        must(number >= 0, "epoll");
        for (int n = 0; n < number; n++) {
            struct peer *peer = &peers[ready[n].data.u32];
            take_in(peer, answer);
            if (replies.size == 0) continue;
            send_all(peer->fd, &replies);
            peer->spoke = true;
        }
        if (seconds_of(CLOCK_MONOTONIC) < beat_at) continue;
        beat_at += 1;
        for (int n = 0; n < count; n++) {
            if (!peers[n].spoke) {
                append_frame(&out, "MDPW02", 6, true);
                append_frame(&out, "\5", 1, false);
                send_all(peers[n].fd, &out);
            }
            peers[n].spoke = false;
        }
    }
}

/* --- client ------------------------------------------------------------------------------------ */
static long answered;

static void count_reply(struct frame *frames, int count) {
    must(count == 4 && is(frames[0], "MDPC02", 6) && is(frames[1], "\3", 1), "a reply");
    must(frames[3].size == body_size, "the size of a reply");
    answered++;
}

static void ask(struct peer *peer, long count) {
    static struct output out;
    for (; count > 0; count--) {
        append_frame(&out, "MDPC02", 6, true);
        append_frame(&out, "\1", 1, true);
        append_frame(&out, "echo", 4, true);
        append_frame(&out, body, body_size, false);
    }
    send_all(peer->fd, &out);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void call(char **arguments) {
    long window = atol(arguments[1]), requests = atol(arguments[5]), count = 0, timed = 0;
    double warm_up = atof(arguments[3]), seconds = atof(arguments[4]), elapsed = 0;
    pid_t pids[3] = {getpid(), atoi(arguments[6]), atoi(arguments[7])};
    static double latencies[LATENCIES_MAX];
    struct timeval limit = {.tv_sec = 10}; /* a lost reply fails the run instead of blocking it */
    struct peer peer = connect_to(atoi(arguments[0]));
    must(setsockopt(peer.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0, "SO_RCVTIMEO");
    double spent[3], began = seconds_of(CLOCK_MONOTONIC), asked = began, now = began;
    ask(&peer, window);
    for (long before; answered < window || now < began + warm_up; now = seconds_of(CLOCK_MONOTONIC)) {
        before = answered;
        take_in(&peer, count_reply);
        ask(&peer, answered - before);
    }
    for (int who = 0; who < 3; who++) spent[who] = -cpu_s(pids[who]);
    answered = 0;
    for (began = asked = now; elapsed < seconds || (count < requests && elapsed < 3 * seconds);) {
        take_in(&peer, count_reply);
        now = seconds_of(CLOCK_MONOTONIC);
        if (window == 1) latencies[timed++ % LATENCIES_MAX] = now - asked;
        asked = now;
        ask(&peer, answered - count);
        count = answered;
        elapsed = now - began;
    }
    for (int who = 0; who < 3; who++) spent[who] += cpu_s(pids[who]);

    printf("{\"answered\": %ld, \"elapsed_s\": %.6f, \"requests_per_s\": %.1f", count, elapsed,
           (double)count / elapsed);
    static const char *const names[] = {"client", "broker", "workers"};
    for (int who = 0; who < 3; who++)
        printf(", \"%s_cpu_us\": %.3f", names[who], spent[who] / (double)count * 1e6);
    if (timed > LATENCIES_MAX) timed = LATENCIES_MAX;
    qsort(latencies, (size_t)timed, sizeof *latencies, by_size);
    if (timed > 0)
        printf(", \"latency_p50_us\": %.3f, \"latency_p99_us\": %.3f", latencies[timed / 2] * 1e6,
               latencies[timed * 99 / 100] * 1e6);
    printf("}\n");
}

int main(int count, char **arguments) {
    if (count < 5) return 2;
    body_size = (size_t)atol(arguments[4]);
    must((body = malloc(body_size + 1)) != NULL, "memory");
    memset(body, 'x', body_size);
    if (count == 5 && strcmp(arguments[1], "worker") == 0)
        serve(atoi(arguments[2]), atoi(arguments[3]));
    else if (count == 10 && strcmp(arguments[1], "client") == 0) call(arguments + 2);
    else return 2;
    return 0;
}
