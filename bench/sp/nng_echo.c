/* REQ/REP echo on nng's aio API: the native contender of `python -m bench.sp`.
 *
 *     nng_echo serve CONTEXTS                          a service; 1: a loop of blocking calls
 *     nng_echo device PORT                             listens, forwards to the service at PORT
 *     nng_echo call PORT WINDOW SIZE WARM_UP_S SECONDS REQUESTS DEVICE_PID SERVICE_PID
 *
 * The first two print "listening on tcp://127.0.0.1:PORT" and run until a signal. The last keeps one
 * request of SIZE bytes in flight in each of WINDOW contexts (1: blocking calls), and prints its
 * figures as JSON; a pid of 0 means no process. It is written for the best performance of nng: no
 * message is created or copied after the first, and only the size of a reply is compared. */
#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>
#include <nng/supplemental/util/platform.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LATENCIES_MAX = 1 << 20 };

struct party { nng_ctx context; nng_aio *aio; bool sending; };

static atomic_long answered;
static size_t size;

static void must(int rv, const char *what) {
    if (rv == 0) return;
    fprintf(stderr, "%s: %s\n", what, nng_strerror(rv));
    exit(1);
}

static double seconds_of(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t) != 0) must(NNG_ENOENT, "the clock of a process");
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_s(pid_t pid) { /* all threads, user and system */
    clockid_t clock;
    if (pid == 0) return 0;
    if (clock_getcpuclockid(pid, &clock) != 0) must(NNG_ENOENT, "the clock of a process");
    return seconds_of(clock);
}

static void listen_at_any_port(nng_socket socket) {
    nng_listener listener;
    int port;
    must(nng_listen(socket, "tcp://127.0.0.1:0", &listener, 0), "listen");
    must(nng_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, &port), "port");
    printf("listening on tcp://127.0.0.1:%d\n", port);
    fflush(stdout);
}

static void dial(nng_socket socket, const char *port) {
    char url[64];
    snprintf(url, sizeof url, "tcp://127.0.0.1:%s", port);
    must(nng_dial(socket, url, NULL, 0), url);
}

/* --- contexts, for both roles: each sends what it received, then receives again ---------------- */
static void step(void *argument) {
    struct party *party = argument;
    must(nng_aio_result(party->aio), "a context");
    if (party->sending) {
        party->sending = false;
        nng_ctx_recv(party->context, party->aio);
        return;
    }
    if (size != 0 && nng_msg_len(nng_aio_get_msg(party->aio)) != size) must(NNG_EPROTO, "a reply");
    atomic_fetch_add_explicit(&answered, 1, memory_order_relaxed);
    party->sending = true; /* the message is where the receiving aio put it */
    nng_ctx_send(party->context, party->aio);
}

static struct party *open_parties(nng_socket socket, int count) {
    struct party *parties = calloc((size_t)count, sizeof *parties);
    for (int n = 0; n < count; n++) {
        must(nng_ctx_open(&parties[n].context, socket), "context");
        must(nng_aio_alloc(&parties[n].aio, step, &parties[n]), "aio");
    }
    return parties;
}

/* --- service and device ------------------------------------------------------------------------ */
static void serve(int contexts) {
    nng_socket socket;
    nng_msg *message;
    must(nng_rep0_open(&socket), "rep");
    listen_at_any_port(socket);
    if (contexts > 1) {
        struct party *parties = open_parties(socket, contexts);
        for (int n = 0; n < contexts; n++) nng_ctx_recv(parties[n].context, parties[n].aio);
        for (;;) pause();
    }
    for (;;) {
        must(nng_recvmsg(socket, &message, 0), "receive");
        must(nng_sendmsg(socket, message, 0), "send");
    }
}

static void forward(const char *port) {
    nng_socket front, back;
    must(nng_rep0_open_raw(&front), "front");
    must(nng_req0_open_raw(&back), "back");
    dial(back, port);
    listen_at_any_port(front);
    must(nng_device(front, back), "device");
}

/* --- client ------------------------------------------------------------------------------------ */
static double call_blocking(nng_socket socket, nng_msg **message) { /* the latency, in seconds */
    double began = seconds_of(CLOCK_MONOTONIC);
    must(nng_sendmsg(socket, *message, 0), "send");
    must(nng_recvmsg(socket, message, 0), "receive");
    double latency = seconds_of(CLOCK_MONOTONIC) - began;
    if (nng_msg_len(*message) != size) must(NNG_EPROTO, "a reply");
    answered++;
    return latency;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static nng_msg *new_request(void) {
    nng_msg *message;
    must(nng_msg_alloc(&message, size), "message");
    memset(nng_msg_body(message), 'x', size);
    return message;
}

static void call(char **arguments) {
    int window = atoi(arguments[1]);
    size = (size_t)atol(arguments[2]);
    double warm_up = atof(arguments[3]), seconds = atof(arguments[4]);
    long requests = atol(arguments[5]), count = 0, timed = 0;
    pid_t pids[3] = {getpid(), atoi(arguments[6]), atoi(arguments[7])};
    static double latencies[LATENCIES_MAX];
    nng_socket socket;
    must(nng_req0_open(&socket), "req");
    dial(socket, arguments[0]);

    nng_msg *message = new_request();
    struct party *parties = window > 1 ? open_parties(socket, window) : NULL;
    for (int n = 0; n < window && parties; n++) {
        parties[n].sending = true;
        nng_aio_set_msg(parties[n].aio, new_request());
        nng_ctx_send(parties[n].context, parties[n].aio);
    }
    for (double began = seconds_of(CLOCK_MONOTONIC); seconds_of(CLOCK_MONOTONIC) < began + warm_up;)
        if (parties) nng_msleep(5); else call_blocking(socket, &message);

    double spent[3], elapsed = 0, began = seconds_of(CLOCK_MONOTONIC);
    for (int who = 0; who < 3; who++) spent[who] = -cpu_s(pids[who]);
    long before = answered;
    while (elapsed < seconds || (count < requests && elapsed < 3 * seconds)) {
        if (parties) nng_msleep(5);
        else latencies[timed++ % LATENCIES_MAX] = call_blocking(socket, &message);
        count = answered - before;
        elapsed = seconds_of(CLOCK_MONOTONIC) - began;
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
    if (count == 3 && strcmp(arguments[1], "serve") == 0) serve(atoi(arguments[2]));
    else if (count == 3 && strcmp(arguments[1], "device") == 0) forward(arguments[2]);
    else if (count == 10 && strcmp(arguments[1], "call") == 0) call(arguments + 2);
    else return 2;
    return 0;
}
