/* All clients of one run, the events that were published to them, and the deliveries to each.
 *
 * Every event has a sequence number and, in a ring, the number of clients that still have to get it. An event is done
 * when that number is 0; `base` is the oldest event that is not. The run does not wait for a stalled client.
 *
 * Either every event is for every client, or each has an address (audience.h) and is for the clients that listen there. */
#ifndef BENCH_SWARM_H
#define BENCH_SWARM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "audience.h"
#include "client.h"
#include "histogram.h"
#include "redis.h"
#include "template.h"

/* Events that may be under way; a run that has more is not keeping up and ends as `overrun`. */
#define RING 262144u
/* After a pause a client is live again with the first event that comes so soon after its planned time. */
#define LIVE_NS (100 * 1000000ull)
#define MAX_CONNECT_BYTES 4096
#define MAX_SERVERS 16

struct options {
    const char *host, *path, *ready, *redis;
    int port, server_pids[MAX_SERVERS]; /* pids end with 0 */
    int redis_pid;                      /* whose CPU time is read too; 0: none */
    int server_core;
    bool speaks_first;
};

struct line {
    char *text;
    size_t length;
};

struct tally {
    uint64_t published, deliveries, bytes;
    uint64_t missing;   /* a client saw a later event first; if it comes after all it is also counted in `late` */
    uint64_t late;      /* an event older than the newest that this client has seen, or not for it: doubled or out of order */
    uint64_t caught_up; /* deliveries to clients that had been stalled, until they were level again */
    uint64_t gaps, backpressure;
};

enum pause { NO_PAUSE, PAUSED, CATCHING_UP, LIVE_AGAIN };

struct swarm {
    struct options options;
    struct line *connects; /* CONNECT texts, used in turn */
    unsigned connect_count;
    struct client *clients;
    unsigned room, started, ready, failed, closed, stalled;
    char first_failure[256];
    int epoll, timer;
    uint64_t timer_ns;
    bool bus_lost, quitting;
    struct redis redis;
    struct template template;
    struct audience audience; /* empty: every event is for every client */
    uint32_t next, base;
    uint32_t remaining[RING];
    uint64_t planned_ns[RING];
    struct tally tally;
    bool recording;
    enum pause pause;
    uint64_t pause_ended_ns, live_ns;
    struct histogram latency, handshake;
};

void swarm_start(struct swarm *swarm);

/* Wait for something to happen, at most until `until_ns`, and let it happen. `commands`: also return for standard input. */
bool swarm_turn(struct swarm *swarm, uint64_t until_ns, bool commands);

/* Put the next event, planned for `planned_ns`, on its way; false when the ring is full or the bus is lost. */
bool swarm_publish(struct swarm *swarm, uint64_t planned_ns);

/* Send what was published since the last flush to Redis, in one write. */
void swarm_flush(struct swarm *swarm);

/* Events under way. */
uint32_t swarm_outstanding(const struct swarm *swarm);

/* Have all clients stop reading, or go on; their events are owed and in time all the same. */
void swarm_pause(struct swarm *swarm, bool paused);

/* Give up on events under way: start the account afresh. */
void swarm_forget(struct swarm *swarm);

/* Connected clients that read. */
unsigned swarm_reading(const struct swarm *swarm);

/* What the clients report. */
void swarm_client_ready(struct swarm *swarm, struct client *client);
void swarm_client_gone(struct swarm *swarm, struct client *client, enum client_state before, const char *why);
void swarm_event(struct swarm *swarm, struct client *client, uint32_t sequence, uint64_t planned_ns, uint64_t read_ns);
void swarm_notice(struct swarm *swarm, const char *text, size_t length);

#endif
