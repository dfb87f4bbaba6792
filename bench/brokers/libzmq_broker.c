/* A Majordomo 0.2 broker (18/MDP) on libzmq, in C: the native contender of `python -m bench`.
 *
 *     libzmq_broker                 listens at a free port of the loopback, until a signal
 *
 * It prints "listening on tcp://127.0.0.1:PORT". Its rules are those of `reference.py`, and like the
 * brokers of the ZeroMQ Guide it receives one message per poll. No body is copied: frames move from
 * the message received to the message sent. Malformed messages are dropped. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

enum { FRAMES_MAX = 64, BUCKETS = 1024, LIVENESS = 3 };
static const double HEARTBEAT_S = 1.0;

struct message { zmq_msg_t frames[FRAMES_MAX]; int count; struct message *next; };

struct worker {
    unsigned char address[255];
    size_t size;
    struct service *service;
    double expires_at;
    bool idle;                     /* it is in its service's waiting list */
    struct worker *next, *waiting; /* the next of its bucket, and of the waiting list */
};

struct service {
    char name[256];
    size_t size;
    struct message *requests, *last_request;
    struct worker *waiting, *last_waiting;
    struct service *next;
};

static void *router;
static struct worker *workers[BUCKETS];
static struct service *services;

static void must(bool done, const char *what) {
    if (done) return;
    fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
    exit(1);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --- frames ------------------------------------------------------------------------------------ */
static bool is(zmq_msg_t *frame, const char *text, size_t size) {
    return zmq_msg_size(frame) == size && memcmp(zmq_msg_data(frame), text, size) == 0;
}

static void put(const void *data, size_t size, bool more) {
    zmq_send(router, data, size, more ? ZMQ_SNDMORE : 0); /* an unknown peer's message is dropped */
}

static void move(struct message *message, int first) { /* send the frames from `first` on */
    for (int n = first; n < message->count; n++)
        if (zmq_msg_send(&message->frames[n], router, n + 1 < message->count ? ZMQ_SNDMORE : 0) < 0)
            zmq_msg_close(&message->frames[n]);
}

static void empty(struct message *message) {
    while (message->count > 0) zmq_msg_close(&message->frames[--message->count]);
}

static bool receive(struct message *message) {
    bool fits = true;
    for (message->count = 0;;) {
        zmq_msg_t *frame = &message->frames[message->count];
        zmq_msg_init(frame);
        must(zmq_msg_recv(frame, router, 0) >= 0, "receive");
        bool more = zmq_msg_more(frame);
        if (message->count + 1 < FRAMES_MAX) message->count++;
        else { zmq_msg_close(frame); fits = false; }
        if (!more) return fits;
    }
}

/* --- workers and services ---------------------------------------------------------------------- */
static struct worker **place_of(const unsigned char *address, size_t size) {
    unsigned hash = 0;
    for (size_t n = 0; n < size; n++) hash = hash * 31 + address[n];
    struct worker **at = &workers[hash % BUCKETS];
    while (*at && ((*at)->size != size || memcmp((*at)->address, address, size))) at = &(*at)->next;
    return at;
}

static struct service *service_of(zmq_msg_t *name) {
    size_t size = zmq_msg_size(name);
    if (size == 0 || size > 255) return NULL;
    for (struct service *each = services; each; each = each->next)
        if (each->size == size && memcmp(each->name, zmq_msg_data(name), size) == 0) return each;
    struct service *service = calloc(1, sizeof *service);
    memcpy(service->name, zmq_msg_data(name), size);
    service->size = size;
    service->next = services;
    return services = service;
}

static void dispatch(struct worker *worker, zmq_msg_t *client, struct message *message, int body) {
    worker->idle = false;
    put(worker->address, worker->size, true);
    put("MDPW02", 6, true);
    put("\2", 1, true);
    put(zmq_msg_data(client), zmq_msg_size(client), true);
    put("", 0, true);
    move(message, body);
}

static void release(struct worker *worker) { /* give it the oldest request, or let it wait */
    struct service *service = worker->service;
    struct message *oldest = service->requests;
    if (oldest) {
        service->requests = oldest->next;
        dispatch(worker, &oldest->frames[0], oldest, 4);
        empty(oldest);
        free(oldest);
        return;
    }
    worker->idle = true;
    worker->waiting = NULL;
    if (service->waiting) service->last_waiting->waiting = worker;
    else service->waiting = worker;
    service->last_waiting = worker;
}

static void forget(struct worker *worker) {
    struct service *service = worker->service;
    struct worker *before = NULL, **at = &service->waiting;
    for (; *at; before = *at, at = &(*at)->waiting)
        if (*at == worker) {
            *at = worker->waiting;
            if (service->last_waiting == worker) service->last_waiting = before;
            break;
        }
    at = place_of(worker->address, worker->size);
    *at = worker->next;
    free(worker);
}

static void say(const unsigned char *address, size_t size, const char *command) {
    put(address, size, true);
    put("MDPW02", 6, true);
    put(command, 1, false);
}

/* --- messages ---------------------------------------------------------------------------------- */
static void from_client(struct message *message) {
    struct service *service = service_of(&message->frames[3]);
    if (!service) return;
    struct worker *worker = service->waiting;
    if (worker) {
        service->waiting = worker->waiting;
        dispatch(worker, &message->frames[0], message, 4);
        return;
    }
    struct message *kept = malloc(sizeof *kept);
    must(kept != NULL, "memory");
    for (int n = 0; n < message->count; n++) {
        zmq_msg_init(&kept->frames[n]);
        zmq_msg_move(&kept->frames[n], &message->frames[n]);
    }
    kept->count = message->count;
    kept->next = NULL;
    if (service->requests) service->last_request->next = kept;
    else service->requests = kept;
    service->last_request = kept;
}

static void from_worker(struct message *message, double now) {
    zmq_msg_t *frames = message->frames;
    const unsigned char *address = zmq_msg_data(&frames[0]);
    size_t size = zmq_msg_size(&frames[0]);
    struct worker **at = place_of(address, size), *worker = *at;
    bool parting = is(&frames[2], "\6", 1);
    if (!worker) {
        struct service *service =
            is(&frames[2], "\1", 1) && message->count == 4 ? service_of(&frames[3]) : NULL;
        if (!service) {
            if (!parting) say(address, size, "\6");
            return;
        }
        worker = *at = calloc(1, sizeof *worker);
        must(worker != NULL, "memory");
        memcpy(worker->address, address, size);
        worker->size = size;
        worker->service = service;
        worker->expires_at = now + HEARTBEAT_S * LIVENESS;
        release(worker);
        return;
    }
    worker->expires_at = now + HEARTBEAT_S * LIVENESS;
    bool final = is(&frames[2], "\4", 1), partial = is(&frames[2], "\3", 1);
    if ((final || partial) && message->count > 5 && !worker->idle) {
        put(zmq_msg_data(&frames[3]), zmq_msg_size(&frames[3]), true);
        put("MDPC02", 6, true);
        put(final ? "\3" : "\2", 1, true);
        put(worker->service->name, worker->service->size, true);
        move(message, 5);
        if (final) release(worker);
    } else if (!is(&frames[2], "\5", 1)) {
        if (!parting) say(address, size, "\6");
        forget(worker);
    }
}

static void tick(double now) { /* once per heartbeat interval */
    for (int n = 0; n < BUCKETS; n++)
        for (struct worker *next, *worker = workers[n]; worker; worker = next) {
            next = worker->next;
            if (worker->expires_at <= now) forget(worker);
            else if (worker->idle) say(worker->address, worker->size, "\5");
        }
}

int main(void) {
    static struct message message;
    char endpoint[64];
    size_t size = sizeof endpoint;
    router = zmq_socket(zmq_ctx_new(), ZMQ_ROUTER);
    must(zmq_bind(router, "tcp://127.0.0.1:*") == 0, "bind");
    must(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &size) == 0, "port");
    printf("listening on %s\n", endpoint);
    fflush(stdout);
    zmq_pollitem_t item = {router, 0, ZMQ_POLLIN, 0};
    for (double tick_at = now_s() + HEARTBEAT_S;;) {
        double rest_s = tick_at - now_s();
        int ready = zmq_poll(&item, 1, rest_s > 0 ? (long)(rest_s * 1000) + 1 : 0);
        must(ready >= 0, "poll");
        double now = now_s();
        if (ready && receive(&message)) {
            if (message.count > 4 && is(&message.frames[1], "MDPC02", 6) &&
                is(&message.frames[2], "\1", 1))
                from_client(&message);
            else if (message.count > 2 && is(&message.frames[1], "MDPW02", 6))
                from_worker(&message, now);
        }
        empty(&message);
        if (now >= tick_at) {
            tick_at = now + HEARTBEAT_S;
            tick(now);
        }
    }
}
