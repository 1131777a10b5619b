#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "socketio.h"
#include "swarm.h"
#include "template.h"

/* One read takes at most this much; a frame may be larger and is put together over several reads. */
enum { READ_BYTES = 256 << 10, MAX_FRAME_BYTES = 16 << 20, PORTS_PER_ADDRESS = 20000 };

static void watch(struct swarm *swarm, struct client *client, uint32_t events, int operation)
{
    struct epoll_event event = {.events = events, .data.ptr = client};
    epoll_ctl(swarm->epoll, operation, client->fd, &event);
}

/* Each address of 127.0.0.0/8 has some 28,000 ports to one destination: further clients come from further addresses. */
static void bind_source(int fd, unsigned index)
{
    int on = 1;
    struct sockaddr_in source = {.sin_family = AF_INET};
    source.sin_addr.s_addr = htonl(INADDR_LOOPBACK + index / PORTS_PER_ADDRESS);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&source, sizeof source))
        perror("bind to a loopback source address");
}

bool client_start(struct swarm *swarm, unsigned index)
{
    struct client *client = &swarm->clients[index];
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)swarm->options.port)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || inet_pton(AF_INET, swarm->options.host, &server.sin_addr) != 1)
        return false;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (index >= PORTS_PER_ADDRESS)
        bind_source(fd, index);
    *client = (struct client){.fd = fd, .state = CONNECTING, .started_ns = now_ns(), .unread = {.limit = MAX_FRAME_BYTES}};
    watch(swarm, client, EPOLLOUT, EPOLL_CTL_ADD);
    if (connect(fd, (struct sockaddr *)&server, sizeof server) && errno != EINPROGRESS)
        client_close(swarm, client, strerror(errno));
    return true;
}

void client_close(struct swarm *swarm, struct client *client, const char *why)
{
    struct linger hard = {1, 0};
    enum client_state before = client->state;
    if (before == UNUSED || before == GONE)
        return;
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(client->fd);
    buffer_free(&client->unread);
    client->state = GONE;
    swarm_client_gone(swarm, client, before, why);
    owed_free(&client->owed);
}

void client_watch(struct swarm *swarm, struct client *client, bool reads)
{
    if (client->state == READY)
        watch(swarm, client, reads ? EPOLLIN : 0, EPOLL_CTL_MOD);
}

void client_stall(struct swarm *swarm, struct client *client, bool stalled)
{
    if (client->state != READY || client->stalled == stalled)
        return;
    client->stalled = stalled;
    client->lagging = !stalled;
    client_watch(swarm, client, !stalled);
}

/* A client's messages are small and rare: if its socket does not take one at once, that is a fault, not a backlog. */
static bool say(struct swarm *swarm, struct client *client, enum opcode opcode, const char *text, size_t length)
{
    char frame[MASKED_FRAME_BYTES(MAX_CONNECT_BYTES)];
    size_t size = frame_write_masked(frame, opcode, text, length);
    if (send(client->fd, frame, size, MSG_NOSIGNAL) == (ssize_t)size)
        return true;
    client_close(swarm, client, "could not send");
    return false;
}

static bool join(struct swarm *swarm, struct client *client)
{
    unsigned index = (unsigned)(client - swarm->clients);
    const struct line *connect_text = &swarm->connects[index % swarm->connect_count];
    return say(swarm, client, TEXT, connect_text->text, connect_text->length);
}

void client_writable(struct swarm *swarm, struct client *client)
{
    char request[4096];
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
        client_close(swarm, client, strerror(error));
        return;
    }
    size_t length = upgrade_request(request, sizeof request, swarm->options.host, swarm->options.port, swarm->options.path);
    if (!length || send(client->fd, request, length, MSG_NOSIGNAL) != (ssize_t)length) {
        client_close(swarm, client, "could not send the upgrade request");
        return;
    }
    client->state = UPGRADING;
    watch(swarm, client, EPOLLIN, EPOLL_CTL_MOD);
}

/* Returns the byte after the HTTP response, NULL while it is not all there or when it is no upgrade (then GONE). */
static const char *read_upgrade(struct swarm *swarm, struct client *client, const char *p, const char *end)
{
    const char *blank = memmem(p, (size_t)(end - p), "\r\n\r\n", 4);
    if (!blank)
        return NULL;
    if (memcmp(p, "HTTP/1.1 101", 12)) {
        char why[200];
        snprintf(why, sizeof why, "upgrade refused: %.*s", (int)(end - p < 150 ? end - p : 150), p);
        client_close(swarm, client, why);
        return NULL;
    }
    client->state = JOINING;
    if (swarm->options.speaks_first && !join(swarm, client))
        return NULL;
    return blank + 4;
}

/* Centrifugo's JSON protocol: replies and pushes, several to a frame, a line each. */
static bool read_lines(struct swarm *swarm, struct client *client, const struct frame *frame, unsigned events)
{
    const char *ready = swarm->options.ready, *end = frame->payload + frame->length;
    bool pinged = frame->length >= 2 && (!memcmp(frame->payload, "{}", 2) || !memcmp(end - 2, "{}", 2) ||
                                         memmem(frame->payload, frame->length, "\n{}\n", 4));
    if (pinged && !say(swarm, client, TEXT, "{}", 2))
        return false;
    if (pinged || events)
        return true;
    if (client->state == JOINING && memmem(frame->payload, frame->length, ready, strlen(ready)))
        swarm_client_ready(swarm, client);
    else if (client->state == READY)
        swarm_notice(swarm, frame->payload, frame->length);
    return true;
}

static bool starts_with(const struct frame *frame, const char *prefix, size_t length)
{
    return frame->length >= length && !memcmp(frame->payload, prefix, length);
}

static bool read_text(struct swarm *swarm, struct client *client, const struct frame *frame, uint64_t read_ns)
{
    const char *p = frame->payload, *end = p + frame->length;
    uint32_t sequence;
    uint64_t planned_ns;
    unsigned events = 0;
    while ((p = marker_find(p, end, &sequence, &planned_ns))) {
        swarm_event(swarm, client, sequence, planned_ns, read_ns);
        events++;
    }
    if (swarm->options.speaks_first)
        return read_lines(swarm, client, frame, events);
    if (events)
        return true;
    if (frame->length == 1 && frame->payload[0] == '2')
        return say(swarm, client, TEXT, "3", 1);
    if (client->state == JOINING && starts_with(frame, "0", 1))
        return join(swarm, client);
    if (client->state == JOINING && starts_with(frame, swarm->options.ready, strlen(swarm->options.ready))) {
        swarm_client_ready(swarm, client);
        return true;
    }
    if (client->state == JOINING && starts_with(frame, "44", 2)) {
        char why[200];
        snprintf(why, sizeof why, "CONNECT refused: %.*s", (int)(frame->length < 150 ? frame->length : 150), frame->payload);
        client_close(swarm, client, why);
        return false;
    }
    swarm_notice(swarm, frame->payload, frame->length);
    return true;
}

static bool read_frame(struct swarm *swarm, struct client *client, const struct frame *frame, uint64_t read_ns)
{
    char why[64];
    switch (frame->opcode) {
    case TEXT:
    case BINARY:
        return read_text(swarm, client, frame, read_ns);
    case PING:
        return say(swarm, client, PONG, frame->payload, frame->length < 125 ? frame->length : 125);
    case CLOSE:
        snprintf(why, sizeof why, "closed by the server with code %d",
                 frame->length >= 2 ? (unsigned char)frame->payload[0] << 8 | (unsigned char)frame->payload[1] : 1005);
        client_close(swarm, client, why);
        return false;
    default:
        return true;
    }
}

/* Read every whole frame in p … end; returns where the first unfinished one starts, NULL when the client is gone. */
static const char *read_frames(struct swarm *swarm, struct client *client, const char *p, const char *end, uint64_t read_ns)
{
    struct frame frame;
    const char *next;
    if (client->state == UPGRADING) {
        next = read_upgrade(swarm, client, p, end);
        if (!next)
            return client->state == GONE ? NULL : p;
        p = next;
    }
    while ((next = frame_read(p, end, &frame))) {
        if (!read_frame(swarm, client, &frame, read_ns))
            return NULL;
        p = next;
    }
    return p;
}

void client_readable(struct swarm *swarm, struct client *client)
{
    /* One room for all clients: the beginning of a frame is put back in front of what comes now. */
    static char room[MAX_FRAME_BYTES + READ_BYTES];
    struct buffer *unread = &client->unread;
    size_t kept = unread->length;
    ssize_t got = recv(client->fd, room + kept, READ_BYTES, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        client_close(swarm, client, got ? strerror(errno) : "closed by the server without a close frame");
        return;
    }
    swarm->tally.bytes += (uint64_t)got;
    if (kept)
        memcpy(room, unread->bytes + unread->start, kept);
    buffer_free(unread);
    /* One clock reading per read, not per frame: what one read returns has arrived by then. */
    const char *end = room + kept + got, *rest = read_frames(swarm, client, room, end, now_ns());
    if (rest && rest < end && !buffer_append(unread, rest, (size_t)(end - rest)))
        client_close(swarm, client, "frame too large");
}
