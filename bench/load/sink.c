/* The upper bound of a fan-out on one core: a Socket.IO server that only looks like one.
 *
 * It accepts WebSocket clients, answers CONNECT with a constant, subscribes to one Redis channel and sends every message to
 * every client. No routing, no sessions, no pings, no limits: what a broadcast costs when nothing but the system calls is
 * left. By default it joins what came from Redis in one read into one send per client (as Headgate does). With --addressed
 * it sends each event, by the address in its channel, to those whose CONNECT names that address, and CHANNEL is a pattern.
 *
 *   sink PORT REDIS_ADDRESS CHANNEL NAMESPACE [--addressed]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buffer.h"
#include "listeners.h"
#include "redis.h"
#include "socketio.h"

enum { MAX_CLIENTS = 20000, JOIN_BYTES = 64 << 10, EVENTS_PER_TURN = 1024, BACKLOG = 4096 };

struct peer {
    int fd;
    unsigned place; /* in `joined`, once it has sent CONNECT */
    enum { UPGRADING, OPEN, JOINED } state;
    struct buffer unsent;
    uint32_t *addresses;
    unsigned address_count;
};

static struct {
    int epoll, listener;
    struct redis redis;
    struct peer *joined[MAX_CLIENTS];
    unsigned count;
    const char *namespace;
    bool addressed;
} sink;

static void drop(struct peer *peer)
{
    if (peer->state == JOINED) {
        sink.joined[peer->place] = sink.joined[--sink.count];
        sink.joined[peer->place]->place = peer->place;
    }
    for (unsigned i = 0; i < peer->address_count; i++)
        listeners_remove(peer->addresses[i], peer);
    free(peer->addresses);
    close(peer->fd);
    buffer_free(&peer->unsent);
    free(peer);
}

static void watch(int fd, void *who, uint32_t events, int operation)
{
    struct epoll_event event = {.events = events, .data.ptr = who};
    epoll_ctl(sink.epoll, operation, fd, &event);
}

/* Send, or keep what the socket does not take; false when the peer must be dropped. */
static bool deliver(struct peer *peer, const char *bytes, size_t length)
{
    ssize_t sent = 0;
    if (!peer->unsent.length) {
        sent = send(peer->fd, bytes, length, MSG_NOSIGNAL);
        if (sent == (ssize_t)length)
            return true;
        if (sent < 0 && errno != EAGAIN)
            return false;
        sent = sent < 0 ? 0 : sent;
        watch(peer->fd, peer, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
    }
    return buffer_append(&peer->unsent, bytes + sent, length - (size_t)sent);
}

static bool drain(struct peer *peer)
{
    ssize_t sent = send(peer->fd, peer->unsent.bytes + peer->unsent.start, peer->unsent.length, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN;
    buffer_consume(&peer->unsent, (size_t)sent);
    if (!peer->unsent.length) {
        buffer_free(&peer->unsent);
        watch(peer->fd, peer, EPOLLIN, EPOLL_CTL_MOD);
    }
    return true;
}

static bool say(struct peer *peer, const char *text)
{
    char frame[256];
    size_t length = strlen(text), head = frame_write_head(frame, length);
    memcpy(frame + head, text, length);
    return deliver(peer, frame, head + length);
}

/* Note the addresses in a CONNECT: one masked frame, which has come whole. */
static void note_addresses(struct peer *peer, char *bytes, size_t length)
{
    size_t head = ((unsigned char)bytes[1] & 0x7f) == 126 ? 8 : 6;
    for (size_t i = head; i < length; i++)
        bytes[i] = (char)(bytes[i] ^ bytes[head - 4 + (i - head) % 4]);
    const char *p = bytes + head, *end = bytes + length;
    for (uint32_t address; head <= length && (p = address_find(p, end, &address));) {
        peer->addresses = realloc(peer->addresses, (peer->address_count + 1) * sizeof *peer->addresses);
        peer->addresses[peer->address_count++] = address;
        listeners_add(address, peer);
    }
}

/* Only two things that a client sends matter: the request, and the first frame after it, which is its CONNECT. */
static bool hear(struct peer *peer)
{
    static const char accepted[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                   "Sec-WebSocket-Accept: " WEBSOCKET_ACCEPT "\r\n\r\n";
    char bytes[8192], text[256];
    ssize_t got = recv(peer->fd, bytes, sizeof bytes, 0);
    if (got <= 0)
        return got < 0 && errno == EAGAIN;
    if (peer->state == UPGRADING) {
        peer->state = OPEN;
        return deliver(peer, accepted, sizeof accepted - 1) &&
               say(peer, "0{\"sid\":\"sink\",\"upgrades\":[],\"pingInterval\":25000,\"pingTimeout\":20000,\"maxPayload\":100000}");
    }
    if (peer->state == OPEN) {
        if (sink.count == MAX_CLIENTS)
            return false;
        peer->state = JOINED;
        peer->place = sink.count;
        sink.joined[sink.count++] = peer;
        if (sink.addressed)
            note_addresses(peer, bytes, (size_t)got);
        snprintf(text, sizeof text, "40%s,{\"sid\":\"sink\"}", sink.namespace);
        return say(peer, text);
    }
    return true;
}

static void broadcast(const char *bytes, size_t length)
{
    for (unsigned i = sink.count; length && i-- > 0;)
        if (!deliver(sink.joined[i], bytes, length))
            drop(sink.joined[i]);
}

/* Frame one message after the others in `out`. */
static void append_event(struct buffer *out, const char *message, size_t length)
{
    char head[10], start[128];
    size_t start_length = (size_t)snprintf(start, sizeof start, "42%s,[\"event\",", sink.namespace);
    buffer_append(out, head, frame_write_head(head, start_length + length + 1));
    buffer_append(out, start, start_length);
    buffer_append(out, message, length);
    buffer_append(out, "]", 1);
}

/* Send what has been joined when it is enough. */
static void fan_out(struct buffer *out, const char *message, size_t length)
{
    append_event(out, message, length);
    if (out->length >= JOIN_BYTES) {
        broadcast(out->bytes + out->start, out->length);
        buffer_consume(out, out->length);
    }
}

/* Send one message to those who listen at the address in its channel, a send for each. */
static void send_addressed(const char *channel, size_t channel_length, const char *message, size_t length)
{
    static struct buffer out;
    uint32_t address;
    if (!address_find(channel, channel + channel_length, &address))
        return;
    append_event(&out, message, length);
    struct listeners *there = listeners_at(address);
    for (uint32_t i = there->count; i-- > 0;)
        if (!deliver(there->all[i], out.bytes + out.start, out.length))
            drop(there->all[i]);
    buffer_consume(&out, out.length);
}

static void read_bus(void)
{
    static struct buffer out;
    struct redis *bus = &sink.redis;
    if (!redis_fill(bus)) {
        fputs("sink: Redis has gone\n", stderr);
        exit(1);
    }
    const char *p = bus->in.bytes + bus->in.start, *end = p + bus->in.length, *start = p, *next;
    while ((next = resp_end(p, end))) {
        size_t length[4];
        const char *part[4], *at = memchr(p, '\n', (size_t)(next - p)) + 1;
        for (int i = 0; i < (sink.addressed ? 4 : 3); i++)
            part[i] = *p == '*' ? resp_bulk(&at, next, &length[i]) : NULL;
        if (sink.addressed && part[0] && part[3] && length[0] == 8 && !memcmp(part[0], "pmessage", 8))
            send_addressed(part[2], length[2], part[3], length[3]);
        else if (!sink.addressed && part[0] && part[2] && length[0] == 7 && !memcmp(part[0], "message", 7))
            fan_out(&out, part[2], length[2]);
        p = next;
    }
    buffer_consume(&bus->in, (size_t)(p - start));
    broadcast(out.bytes + out.start, out.length);
    buffer_consume(&out, out.length);
}

static void accept_peers(void)
{
    int on = 1, fd;
    while ((fd = accept4(sink.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct peer *peer = calloc(1, sizeof *peer);
        peer->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(fd, peer, EPOLLIN, EPOLL_CTL_ADD);
    }
}

static void listen_on(int port)
{
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sink.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(sink.listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(sink.listener, (struct sockaddr *)&address, sizeof address) || listen(sink.listener, BACKLOG)) {
        perror("sink: listen");
        exit(2);
    }
}

static void turn(void)
{
    struct epoll_event events[EVENTS_PER_TURN];
    int count = epoll_wait(sink.epoll, events, EVENTS_PER_TURN, -1);
    bool bus = false;
    for (int i = 0; i < count; i++) {
        struct peer *peer = events[i].data.ptr;
        if (events[i].data.ptr == &sink.listener)
            accept_peers();
        else if (events[i].data.ptr == &sink.redis)
            bus = true; /* last: a broadcast may drop peers that have an event in this turn */
        else if ((events[i].events & EPOLLOUT && !drain(peer)) || (events[i].events & ~EPOLLOUT && !hear(peer)))
            drop(peer);
    }
    if (bus)
        read_bus();
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fputs("usage: sink PORT REDIS_ADDRESS CHANNEL NAMESPACE [--addressed]\n", stderr);
        return 2;
    }
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sink.namespace = argv[4];
    sink.addressed = argc > 5 && !strcmp(argv[5], "--addressed");
    sink.epoll = epoll_create1(EPOLL_CLOEXEC);
    redis_connect(&sink.redis, argv[2]);
    char command[512];
    int length = snprintf(command, sizeof command, "*2\r\n%s\r\n$%zu\r\n%s\r\n",
                          sink.addressed ? "$10\r\nPSUBSCRIBE" : "$9\r\nSUBSCRIBE", strlen(argv[3]), argv[3]);
    redis_send(&sink.redis, command, (size_t)length);
    watch(sink.redis.fd, &sink.redis, EPOLLIN, EPOLL_CTL_ADD);
    listen_on(atoi(argv[1]));
    watch(sink.listener, &sink.listener, EPOLLIN, EPOLL_CTL_ADD);
    for (;;)
        turn();
}
