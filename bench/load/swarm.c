#include "swarm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "clock.h"

enum { EVENTS_PER_TURN = 1024 };

static void watch_fd(struct swarm *swarm, int fd, void *who)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = who};
    epoll_ctl(swarm->epoll, EPOLL_CTL_ADD, fd, &event);
}

void swarm_start(struct swarm *swarm)
{
    swarm->next = swarm->base = 1;
    swarm->epoll = epoll_create1(EPOLL_CLOEXEC);
    swarm->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    watch_fd(swarm, swarm->timer, &swarm->timer);
    watch_fd(swarm, STDIN_FILENO, swarm);
    if (swarm->options.redis) {
        redis_connect(&swarm->redis, swarm->options.redis);
        watch_fd(swarm, swarm->redis.fd, &swarm->redis);
    }
}

static void set_timer(struct swarm *swarm, uint64_t at_ns)
{
    if (swarm->timer_ns == at_ns)
        return;
    swarm->timer_ns = at_ns;
    struct itimerspec spec = {.it_value = {(time_t)(at_ns / NS_PER_S), (long)(at_ns % NS_PER_S)}};
    timerfd_settime(swarm->timer, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void client_turn(struct swarm *swarm, struct client *client, uint32_t events)
{
    if (client->state == GONE)
        return;
    if (client->state == CONNECTING)
        client_writable(swarm, client);
    else if (events & EPOLLIN)
        client_readable(swarm, client);
    else if (events & (EPOLLHUP | EPOLLERR))
        client_close(swarm, client, "reset by the server");
}

bool swarm_turn(struct swarm *swarm, uint64_t until_ns, bool commands)
{
    struct epoll_event events[EVENTS_PER_TURN];
    bool commanded = false, hung_up = false;
    set_timer(swarm, until_ns);
    if (now_ns() >= until_ns)
        swarm->timer_ns = 0; /* has fired, or will have: the next one is set anew */
    int count = epoll_wait(swarm->epoll, events, EVENTS_PER_TURN, 1000);
    for (int i = 0; i < count; i++) {
        void *who = events[i].data.ptr;
        if (who == &swarm->timer) {
            uint64_t fired;
            if (read(swarm->timer, &fired, sizeof fired) > 0)
                swarm->timer_ns = 0;
        } else if (who == &swarm->redis) {
            swarm->bus_lost |= !redis_flush(&swarm->redis) || !redis_read_replies(&swarm->redis);
            if (swarm->bus_lost)
                epoll_ctl(swarm->epoll, EPOLL_CTL_DEL, swarm->redis.fd, NULL);
        } else if (who == swarm) {
            commanded = true;
            hung_up = events[i].events & EPOLLHUP;
        } else {
            client_turn(swarm, who, events[i].events);
        }
    }
    /* A command that comes during another is left for later; the end of input (the harness has gone) is not. */
    if (hung_up && !commands)
        swarm->quitting = true;
    if (swarm->redis.out.length)
        swarm->bus_lost |= !redis_flush(&swarm->redis);
    return commanded;
}

unsigned swarm_reading(const struct swarm *swarm)
{
    return swarm->ready - swarm->stalled;
}

uint32_t swarm_outstanding(const struct swarm *swarm)
{
    return swarm->next - swarm->base;
}

static void move_base(struct swarm *swarm)
{
    while (swarm->base != swarm->next && !swarm->remaining[swarm->base % RING])
        swarm->base++;
}

void swarm_forget(struct swarm *swarm)
{
    swarm->base = swarm->next;
}

/* Choose the address of an event and owe it to all its listeners; returns how many of them read. */
static uint32_t address_event(struct swarm *swarm, uint32_t sequence)
{
    const struct audience *audience = &swarm->audience;
    uint32_t address = audience_address(audience, sequence), reading = 0;
    template_address(&swarm->template, address);
    for (uint32_t i = audience->first[address]; i < audience->first[address + 1]; i++) {
        struct client *client = &swarm->clients[audience->listeners[i]];
        if (client->state != READY)
            continue;
        owed_push(&client->owed, sequence, !client->stalled);
        reading += !client->stalled;
    }
    return reading;
}

bool swarm_publish(struct swarm *swarm, uint64_t planned_ns)
{
    if (swarm_outstanding(swarm) >= RING || swarm->bus_lost)
        return false;
    uint32_t sequence = swarm->next++;
    swarm->remaining[sequence % RING] = swarm->audience.count ? address_event(swarm, sequence) : swarm_reading(swarm);
    swarm->planned_ns[sequence % RING] = planned_ns;
    swarm->tally.published++;
    if (swarm->audience.count)
        move_base(swarm); /* an event that nobody listens to is done at once */
    template_fill(&swarm->template, sequence, planned_ns);
    swarm->bus_lost |= !buffer_append(&swarm->redis.out, swarm->template.bytes, swarm->template.length);
    return !swarm->bus_lost;
}

void swarm_flush(struct swarm *swarm)
{
    swarm->bus_lost |= !redis_flush(&swarm->redis);
}

/* One client that was waited for has this event, or will not get it any more. */
static void done_with(struct swarm *swarm, uint32_t sequence)
{
    uint32_t *remaining = &swarm->remaining[sequence % RING];
    if (sequence >= swarm->base && sequence < swarm->next && *remaining && !--*remaining && sequence == swarm->base)
        move_base(swarm);
}

static void arrived(struct swarm *swarm, uint32_t sequence, uint64_t planned_ns, uint64_t read_ns)
{
    uint64_t took_ns = read_ns > planned_ns ? read_ns - planned_ns : 0;
    if (swarm->pause == CATCHING_UP && took_ns <= LIVE_NS) {
        swarm->pause = LIVE_AGAIN;
        swarm->live_ns = read_ns;
    }
    if (swarm->recording && (swarm->pause == NO_PAUSE || (swarm->pause == LIVE_AGAIN && read_ns - swarm->live_ns >= NS_PER_S)))
        histogram_record(&swarm->latency, took_ns);
    done_with(swarm, sequence);
}

void swarm_pause(struct swarm *swarm, bool paused)
{
    swarm->pause = paused ? PAUSED : CATCHING_UP;
    if (!paused)
        swarm->pause_ended_ns = now_ns();
    for (unsigned i = 0; i < swarm->started; i++)
        client_watch(swarm, &swarm->clients[i], !paused);
}

/* Where events have addresses, each client has its own order: what it has skipped is missing and not waited for any more, what
 * it was not owed is late. */
static void owed_event(struct swarm *swarm, struct client *client, uint32_t sequence, uint64_t planned_ns, uint64_t read_ns)
{
    struct tally *tally = &swarm->tally;
    if (!owed_holds(&client->owed, sequence)) {
        tally->deliveries++;
        tally->late++;
        return;
    }
    struct owed_item item;
    while ((item = owed_pop(&client->owed)).sequence != sequence) {
        tally->missing++;
        if (item.waited_for)
            done_with(swarm, item.sequence);
    }
    if (item.waited_for) {
        tally->deliveries++;
        arrived(swarm, sequence, planned_ns, read_ns);
    } else {
        tally->caught_up++;
    }
}

void swarm_event(struct swarm *swarm, struct client *client, uint32_t sequence, uint64_t planned_ns, uint64_t read_ns)
{
    struct tally *tally = &swarm->tally;
    uint32_t expected = client->next_sequence;
    if (swarm->audience.count) {
        owed_event(swarm, client, sequence, planned_ns, read_ns);
        return;
    }
    if (client->lagging) {
        tally->caught_up++;
        if (sequence + 1 >= swarm->next)
            client->lagging = false;
        client->next_sequence = sequence + 1;
        return;
    }
    tally->deliveries++;
    if (expected && sequence < expected) {
        tally->late++;
        return;
    }
    if (expected)
        tally->missing += sequence - expected;
    for (uint32_t skipped = expected; swarm->pause != NO_PAUSE && expected && skipped < sequence; skipped++)
        done_with(swarm, skipped);
    client->next_sequence = sequence + 1;
    arrived(swarm, sequence, planned_ns, read_ns);
}

static bool holds(const char *text, size_t length, const char *word)
{
    return memmem(text, length < 80 ? length : 80, word, strlen(word)) != NULL;
}

void swarm_notice(struct swarm *swarm, const char *text, size_t length)
{
    if (holds(text, length, "\"gap\""))
        swarm->tally.gaps++;
    else if (holds(text, length, "\"backpressure\""))
        swarm->tally.backpressure++;
}

void swarm_client_ready(struct swarm *swarm, struct client *client)
{
    client->state = READY;
    client->next_sequence = 0;
    swarm->ready++;
    histogram_record(&swarm->handshake, now_ns() - client->started_ns);
}

/* A client that leaves is not waited for any more: its share of every event under way is taken off. */
static void settle(struct swarm *swarm, struct client *client)
{
    while (client->owed.count) {
        struct owed_item item = owed_pop(&client->owed);
        if (item.waited_for)
            done_with(swarm, item.sequence);
    }
    if (swarm->audience.count)
        return;
    uint32_t from = client->next_sequence > swarm->base ? client->next_sequence : swarm->base;
    for (uint32_t sequence = from; sequence < swarm->next; sequence++)
        if (swarm->remaining[sequence % RING])
            swarm->remaining[sequence % RING]--;
    move_base(swarm);
}

void swarm_client_gone(struct swarm *swarm, struct client *client, enum client_state before, const char *why)
{
    if (before == READY) {
        swarm->ready--;
        if (client->stalled)
            swarm->stalled--;
        if (swarm->audience.count || (!client->stalled && !client->lagging))
            settle(swarm, client);
    }
    if (!why)
        return;
    if (before == READY)
        swarm->closed++;
    else if (!swarm->failed++)
        snprintf(swarm->first_failure, sizeof swarm->first_failure, "%s", why);
}
