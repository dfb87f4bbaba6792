/* Requests at a rate that does not depend on the replies, in MDP 0.3: an open loop.
 *
 *     offered RATE TIMEOUT_S WARM_UP_S SECONDS REQUEST SOCKET...
 *
 * REQUEST is a request with the number 0, encoded and in hex; each SOCKET is the descriptor of a
 * connection after its handshake. A request is due at an instant, and its deadline is TIMEOUT_S
 * later, even if the broker does not read it before. A request that could not be sent before its
 * deadline is not sent any more. The program prints "open" and "stop" where the SECONDS begin and
 * end, and what became of the requests that were due within them, as JSON. It is written in C
 * because it would otherwise take more of the machine than the broker that it overloads. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

enum {
    BUFFER = 1 << 18,
    AT_ONCE = 128,      /* requests that are encoded together */
    SEND_BYTES = 16384, /* requests wait here, where they can time out, and not in the kernel */
    LINES_MAX = 4096,
    TICK_MS = 1,
    MORE = 1,
    LONG = 2,
    ID = 9, TIMEOUT = 17, CALL = 31, /* in an encoded request: two bytes of ZMTP come first */
    OK = 0, OVERLOADED = 3, EXPIRED = 4, LATE = 254, UNSENT = 255, /* LATE, UNSENT: no statuses */
    STEP_US = 10, STEPS = 1 << 20,
};

struct line {
    int fd;
    bool blocked;
    int64_t next; /* the number of the next request */
    size_t begun, end, held;
    unsigned char *output, input[BUFFER]; /* `held` bytes of input are not parsed */
};

static struct line *lines[LINES_MAX];
static int count, poller;
static double rate, timeout_s, started, counted_from, counted_to;
static unsigned char *request;
static size_t request_size;
static uint64_t ends[256], steps[STEPS]; /* by status; of latencies */

static void must(bool done, const char *what) {
    if (done) return;
    fprintf(stderr, "offered: %s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double due_at(int64_t number) { return started + (double)number / rate; }

static void put(unsigned char *at, uint64_t value, int size) {
    for (int n = size; n-- > 0; value >>= 8) at[n] = (unsigned char)value;
}

static uint64_t get(const unsigned char *at, int size) {
    uint64_t value = 0;
    for (int n = 0; n < size; n++) value = value << 8 | at[n];
    return value;
}

/* Count the end of a request. */
static void note(int64_t number, int status, double now) {
    double due = due_at(number);
    if (due < counted_from || due >= counted_to) return;
    if (status == OK) {
        uint64_t step = (uint64_t)((now - due) * 1e6 / STEP_US);
        steps[step < STEPS ? step : STEPS - 1]++;
        if (now - due > timeout_s) status = LATE;
    }
    ends[status]++;
}

static void listen_for(struct line *line, uint32_t events, int how) {
    struct epoll_event event = {.events = events, .data.ptr = line};
    must(epoll_ctl(poller, how, line->fd, &event) == 0, "epoll");
}

/* Encode the next requests that are due, with the time that is left to the oldest. */
static void encode(struct line *line, double now) {
    int64_t due = (int64_t)((now - started) * rate);
    for (; line->next < due && due_at(line->next) + timeout_s <= now; line->next += count)
        note(line->next, UNSENT, now);
    double left_ms = (due_at(line->next) + timeout_s - now) * 1000;
    put(request + TIMEOUT, left_ms < 1 ? 1 : (uint64_t)left_ms, 4);
    line->begun = line->end = 0;
    for (int n = 0; n < AT_ONCE && line->next < due; n++, line->next += count) {
        put(request + ID, (uint64_t)line->next, 8);
        put(request + CALL, (uint64_t)line->next, 8);
        memcpy(line->output + line->end, request, request_size);
        line->end += request_size;
    }
}

static void send_due(struct line *line, double now) {
    while (!line->blocked) {
        if (line->begun == line->end) encode(line, now);
        if (line->begun == line->end) return;
        size_t left = line->end - line->begun;
        ssize_t sent = send(line->fd, line->output + line->begun, left, MSG_NOSIGNAL);
        if (sent >= 0) {
            line->begun += (size_t)sent;
            continue;
        }
        must(errno == EAGAIN, "send");
        line->blocked = true;
        listen_for(line, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
    }
}

static void receive(struct line *line) {
    ssize_t got = recv(line->fd, line->input + line->held, BUFFER - line->held, 0);
    must(got > 0, "receive");
    double now = now_s();
    size_t end = line->held + (size_t)got, begun = 0;
    const unsigned char *header = NULL;
    for (size_t at = 0; at + 2 <= end;) {
        unsigned char flags = line->input[at];
        size_t head = flags & LONG ? 9 : 2;
        if (at + head > end) break;
        size_t size = (size_t)get(line->input + at + 1, flags & LONG ? 8 : 1);
        if (at + head + size > end) break;
        if (header == NULL) header = line->input + at + head;
        at += head + size;
        if (flags & MORE) continue;
        if (memcmp(header, "MDPC03\3", 7) == 0)
            note((int64_t)get(header + 7, 8), header[15], now);
        else
            must(memcmp(header, "MDPC03\5", 7) == 0, "neither FINAL nor HEARTBEAT");
        header = NULL;
        begun = at;
    }
    line->held = end - begun;
    memmove(line->input, line->input + begun, line->held);
}

static void run_until(double end) {
    struct epoll_event events[64];
    for (double now; (now = now_s()) < end;) {
        for (int n = 0; n < count; n++) send_due(lines[n], now);
        int found = epoll_wait(poller, events, 64, TICK_MS);
        for (int n = 0; n < found; n++) {
            struct line *line = events[n].data.ptr;
            if (events[n].events & EPOLLIN) receive(line);
            if (events[n].events & EPOLLOUT) {
                line->blocked = false;
                listen_for(line, EPOLLIN, EPOLL_CTL_MOD);
            }
        }
    }
}

static double latency_us(double share) {
    uint64_t all = 0, below = 0;
    for (int n = 0; n < STEPS; n++) all += steps[n];
    for (int n = 0; n < STEPS; n++)
        if ((double)(below += steps[n]) > share * (double)all) return (double)n * STEP_US;
    return 0;
}

static void read_request(const char *hex) {
    request_size = strlen(hex) / 2;
    must((request = malloc(request_size)) != NULL, "memory");
    for (size_t n = 0; n < request_size; n++)
        must(sscanf(hex + 2 * n, "%2hhx", &request[n]) == 1, "REQUEST");
}

int main(int argc, char **argv) {
    must(argc > 6 && argc - 6 <= LINES_MAX, "RATE TIMEOUT_S WARM_UP_S SECONDS REQUEST SOCKET...");
    rate = atof(argv[1]), timeout_s = atof(argv[2]);
    double warm_up_s = atof(argv[3]), seconds = atof(argv[4]);
    read_request(argv[5]);
    must((poller = epoll_create1(0)) >= 0, "epoll");
    for (int n = 6; n < argc; n++) {
        struct line *line = lines[count] = calloc(1, sizeof *line);
        must(line != NULL && (line->output = malloc(AT_ONCE * request_size)) != NULL, "memory");
        int size = SEND_BYTES;
        line->fd = atoi(argv[n]);
        line->next = count++;
        must(fcntl(line->fd, F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
        must(setsockopt(line->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0, "SO_SNDBUF");
        listen_for(line, EPOLLIN, EPOLL_CTL_ADD);
    }
    started = now_s();
    counted_from = started + warm_up_s;
    counted_to = counted_from + seconds;
    run_until(counted_from);
    puts("open");
    fflush(stdout);
    run_until(counted_to);
    puts("stop");
    fflush(stdout);
    run_until(counted_to + timeout_s); /* the last replies, under the same load */
    for (int n = 0; n < count; n++) /* those of blocked connections */
        for (; due_at(lines[n]->next) < counted_to; lines[n]->next += count)
            note(lines[n]->next, UNSENT, counted_to);
    printf("{\"ok\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"expired\": %" PRIu64 ","
           " \"late\": %" PRIu64 ", \"unsent\": %" PRIu64 ","
           " \"latency_p50_us\": %.0f, \"latency_p99_us\": %.0f}\n",
           ends[OK], ends[OVERLOADED], ends[EXPIRED], ends[LATE], ends[UNSENT],
           latency_us(0.5), latency_us(0.99));
    return 0;
}
