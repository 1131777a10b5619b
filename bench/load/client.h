/* One client: a non-blocking socket, where it is in its life, and what it has been sent.
 *
 * Life: CONNECTING (TCP) → UPGRADING (HTTP) → JOINING (Engine.IO open seen, CONNECT sent) → READY → GONE.
 * It notifies the swarm of events, of notices and of the change to READY or GONE. */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "audience.h"
#include "buffer.h"

struct swarm;

enum client_state { UNUSED, CONNECTING, UPGRADING, JOINING, READY, GONE };

struct client {
    int fd;
    enum client_state state;
    bool stalled;           /* does not read */
    bool lagging;           /* was stalled: what it reads is catching up until it has seen the newest event */
    uint32_t next_sequence; /* what the next event should be; 0 before the first */
    uint64_t started_ns;
    struct owed owed;       /* where events have addresses: the events that it has yet to get */
    struct buffer unread;   /* the beginning of a frame whose end has not come yet */
};

/* Start connecting client number `index`; false when the socket cannot even be made. */
bool client_start(struct swarm *swarm, unsigned index);

/* The socket has become writable (TCP connection made or refused) or readable. */
void client_writable(struct swarm *swarm, struct client *client);
void client_readable(struct swarm *swarm, struct client *client);

/* Read what comes, or do not: what is owed to it stays the same. */
void client_watch(struct swarm *swarm, struct client *client, bool reads);

/* Stop or go on reading. */
void client_stall(struct swarm *swarm, struct client *client, bool stalled);

/* Close without waiting (RST, so that thousands of ports are free again at once); counted only when `why` is given. */
void client_close(struct swarm *swarm, struct client *client, const char *why);

#endif
