#include "pace.h"

#include <stddef.h>

#include "clock.h"

struct mark {
    uint64_t at_ns;
    double server_cpu_s, redis_cpu_s, load_cpu_s, core_busy_s;
    struct tally tally;
};

/* CPU seconds of all servers together; -1 without servers, or if one of them cannot be read. */
static double servers_cpu_s(const int *pids)
{
    double sum = 0;
    for (const int *pid = pids; *pid; pid++) {
        double used = process_cpu_s(*pid);
        if (used < 0)
            return -1;
        sum += used;
    }
    return *pids ? sum : -1;
}

static struct mark mark_now(struct swarm *swarm)
{
    return (struct mark){now_ns(), servers_cpu_s(swarm->options.server_pids), process_cpu_s(swarm->options.redis_pid), own_cpu_s(),
                         core_busy_s(swarm->options.server_core), swarm->tally};
}

/* The account is all uint64_t counters, so a difference of two is a difference field by field. */
static struct tally tally_since(const struct tally *then, const struct tally *now)
{
    struct tally difference;
    const uint64_t *a = (const uint64_t *)then, *b = (const uint64_t *)now;
    uint64_t *out = (uint64_t *)&difference;
    for (size_t i = 0; i < sizeof difference / sizeof *out; i++)
        out[i] = b[i] - a[i];
    return difference;
}

static void measure_since(struct swarm *swarm, struct run *run, struct mark start)
{
    struct mark end = mark_now(swarm);
    run->seconds = (double)(end.at_ns - start.at_ns) / NS_PER_S;
    run->server_cpu_s = start.server_cpu_s < 0 || end.server_cpu_s < 0 ? -1 : end.server_cpu_s - start.server_cpu_s;
    run->redis_cpu_s = start.redis_cpu_s < 0 || end.redis_cpu_s < 0 ? -1 : end.redis_cpu_s - start.redis_cpu_s;
    run->load_cpu_s = end.load_cpu_s - start.load_cpu_s;
    run->core_busy_s = end.core_busy_s - start.core_busy_s;
    run->tally = tally_since(&start.tally, &end.tally);
}

static const char *fault(const struct swarm *swarm)
{
    return swarm->quitting ? "quit" : swarm->bus_lost ? "bus_lost" : !swarm->template.bytes ? "no_template" : NULL;
}

/* Wait until every event under way is done: as long as there is someone to read it and progress, but not for ever. */
static void finish(struct swarm *swarm, struct run *run)
{
    uint32_t base = swarm->base;
    uint64_t start_ns = now_ns(), moved_ns = start_ns;
    while (swarm_outstanding(swarm) && swarm_reading(swarm) && !fault(swarm)) {
        uint64_t now = now_ns();
        if (swarm->base != base) {
            base = swarm->base;
            moved_ns = now;
        }
        if (now - moved_ns > NO_PROGRESS_S * NS_PER_S || now - start_ns > 4 * NO_PROGRESS_S * NS_PER_S)
            break;
        swarm_turn(swarm, now + 100 * NS_PER_MS, false);
    }
    for (uint32_t sequence = swarm->base; sequence != swarm->next; sequence++)
        run->undelivered += swarm->remaining[sequence % RING];
    if (swarm_outstanding(swarm) && !run->outcome)
        run->outcome = "undelivered";
    swarm_forget(swarm);
    if (!run->outcome)
        run->outcome = fault(swarm);
}

static void start_recording(struct swarm *swarm)
{
    histogram_clear(&swarm->latency);
    swarm->recording = true;
}

void run_connect(struct swarm *swarm, struct run *run, unsigned count, unsigned parallel, uint64_t limit_ms, uint64_t events)
{
    unsigned wanted = swarm->started + count <= swarm->room ? swarm->started + count : swarm->room;
    unsigned ready = swarm->ready, failed = swarm->failed, closed = swarm->closed, first = swarm->started;
    histogram_clear(&swarm->handshake);
    struct mark start = mark_now(swarm);
    uint64_t deadline = start.at_ns + limit_ms * NS_PER_MS;
    for (;;) {
        unsigned settled = swarm->ready - ready + swarm->failed - failed + swarm->closed - closed;
        while (swarm->started < wanted && swarm->started - first - settled < parallel)
            if (!client_start(swarm, swarm->started++))
                swarm->failed++;
        bool all = first + settled >= wanted && swarm->tally.deliveries - start.tally.deliveries >= events;
        if (all || now_ns() > deadline || swarm->quitting)
            break;
        swarm_turn(swarm, deadline, false);
    }
    measure_since(swarm, run, start);
    if (swarm->ready - ready != count)
        run->outcome = "not_all_connected";
    else if (run->tally.deliveries < events)
        run->outcome = "undelivered";
}

void run_window(struct swarm *swarm, struct run *run, uint32_t window, uint64_t warm_ms, uint64_t measure_ms)
{
    struct mark start = mark_now(swarm);
    uint64_t begin = start.at_ns + warm_ms * NS_PER_MS, end = begin + measure_ms * NS_PER_MS;
    uint64_t moved_ns = start.at_ns;
    uint32_t base = swarm->base;
    bool measuring = false;
    while (!(run->outcome = fault(swarm))) {
        uint64_t now = now_ns();
        if (!measuring && now >= begin) {
            start = mark_now(swarm);
            start_recording(swarm);
            measuring = true;
        }
        if (now >= end)
            break;
        for (uint32_t i = 0; i < window && swarm_outstanding(swarm) < window && swarm_publish(swarm, now_ns()); i++)
            swarm_flush(swarm);
        swarm_flush(swarm);
        if (swarm->base != base) {
            base = swarm->base;
            moved_ns = now;
        } else if (now - moved_ns > NO_PROGRESS_S * NS_PER_S) {
            run->outcome = "no_progress";
            break;
        }
        swarm_turn(swarm, measuring ? end : begin, false);
    }
    measure_since(swarm, run, start);
    swarm->recording = false;
    finish(swarm, run);
}

static void keep_schedule(struct swarm *swarm, struct run *run, uint32_t size, uint64_t times, double every_ns, uint64_t pause_ns)
{
    struct mark start = mark_now(swarm);
    uint64_t first_ns = start.at_ns + 10 * NS_PER_MS;
    uint64_t pause_from_ns = pause_ns ? first_ns + (uint64_t)((double)times * every_ns / 2) - pause_ns / 2 : 0;
    start_recording(swarm);
    for (uint64_t i = 0; i < times && !(run->outcome = fault(swarm)); i++) {
        uint64_t planned_ns = first_ns + (uint64_t)((double)i * every_ns), now;
        if (pause_from_ns && swarm->pause == NO_PAUSE && planned_ns >= pause_from_ns)
            swarm_pause(swarm, true);
        if (swarm->pause == PAUSED && planned_ns >= pause_from_ns + pause_ns)
            swarm_pause(swarm, false);
        while ((now = now_ns()) < planned_ns && !fault(swarm))
            swarm_turn(swarm, planned_ns, false);
        if (now > planned_ns && now - planned_ns > run->worst_lateness_ns)
            run->worst_lateness_ns = now - planned_ns;
        for (uint32_t j = 0; j < size; j++)
            if (!swarm_publish(swarm, planned_ns) && !run->outcome)
                run->outcome = fault(swarm) ? fault(swarm) : "overrun";
        swarm_flush(swarm);
        if (run->outcome)
            break;
    }
    finish(swarm, run);
    measure_since(swarm, run, start);
    swarm->recording = false;
}

void run_open(struct swarm *swarm, struct run *run, double rate, uint64_t measure_ms)
{
    keep_schedule(swarm, run, 1, (uint64_t)(rate * (double)measure_ms / 1e3), NS_PER_S / rate, 0);
}

void run_paused(struct swarm *swarm, struct run *run, double rate, uint64_t measure_ms, uint64_t pause_ms)
{
    swarm->pause = NO_PAUSE;
    keep_schedule(swarm, run, 1, (uint64_t)(rate * (double)measure_ms / 1e3), NS_PER_S / rate, pause_ms * NS_PER_MS);
    run->is_paused = true;
    run->live_again_ms = swarm->pause == LIVE_AGAIN ? (double)(swarm->live_ns - swarm->pause_ended_ns) / NS_PER_MS : -1;
    swarm->pause = NO_PAUSE;
}

void run_burst(struct swarm *swarm, struct run *run, uint32_t size, uint32_t times, uint64_t every_ms)
{
    keep_schedule(swarm, run, size, times, (double)(every_ms * NS_PER_MS), 0);
}

void run_idle(struct swarm *swarm, struct run *run, uint64_t ms, uint64_t enough)
{
    struct mark start = mark_now(swarm);
    uint64_t end = start.at_ns + ms * NS_PER_MS, had = start.tally.deliveries + start.tally.caught_up;
    while (now_ns() < end && !swarm->quitting && !(enough && swarm->tally.deliveries + swarm->tally.caught_up - had >= enough))
        swarm_turn(swarm, end, false);
    measure_since(swarm, run, start);
}
