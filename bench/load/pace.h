/* When to publish: the five ways of loading a server, and joining and sitting idle.
 *
 * Each runs to its own end (time or count, then a bounded wait for what is still under way) and leaves its figures in
 * the swarm and in `struct run`. `outcome` is NULL when all went as it should, else one word. */
#ifndef BENCH_PACE_H
#define BENCH_PACE_H

#include "swarm.h"

/* A run in which no event has been completed for this long has failed. */
#define NO_PROGRESS_S 15

struct run {
    double seconds, server_cpu_s, redis_cpu_s, load_cpu_s;
    double core_busy_s; /* what anybody used of the server's core */
    struct tally tally; /* differences over the measured part */
    uint64_t undelivered;
    uint64_t worst_lateness_ns; /* open schedule: how late the generator itself published, at worst */
    bool is_paused;
    double live_again_ms; /* after the pause, until an event came in time again; -1: none did */
    const char *outcome;
};

/* Connect clients until `count` have joined, at most `parallel` of them on the way at a time, and, if `events` is not 0, until
 * they have had so many events together. */
void run_connect(struct swarm *swarm, struct run *run, unsigned count, unsigned parallel, uint64_t limit_ms, uint64_t events);

/* Keep `window` events under way; measure after `warm_ms`, for `measure_ms`. Each event is a separate write to Redis, as
 * from independent publishers. */
void run_window(struct swarm *swarm, struct run *run, uint32_t window, uint64_t warm_ms, uint64_t measure_ms);

/* Publish at planned times, `rate` events per second, whatever happens; latency counts from the planned time. */
void run_open(struct swarm *swarm, struct run *run, double rate, uint64_t measure_ms);

/* The same; in the middle no client reads for `pause_ms`, and what is skipped at one is not waited for. */
void run_paused(struct swarm *swarm, struct run *run, double rate, uint64_t measure_ms, uint64_t pause_ms);

/* Publish `size` events at once, `times` times, one burst every `every_ms`; latency counts from the planned time. */
void run_burst(struct swarm *swarm, struct run *run, uint32_t size, uint32_t times, uint64_t every_ms);

/* Answer pings, read what comes, for so long or until `enough` events have come; 0: there is never enough. */
void run_idle(struct swarm *swarm, struct run *run, uint64_t ms, uint64_t enough);

#endif
