/* Who listens where: addresses (numbers that stand for topics, rooms or channels), the clients that listen to each, and,
 * per client, the events that it has yet to get, in order. */
#ifndef BENCH_AUDIENCE_H
#define BENCH_AUDIENCE_H

#include <stdbool.h>
#include <stdint.h>

struct audience {
    uint32_t count;      /* addresses; 0: there are none, every event is for every client */
    uint32_t *first;     /* listeners[first[a] … first[a + 1]) are the clients of address a */
    uint32_t *listeners;
};

/* Read lines of addresses separated by spaces; line i is client i's, the lines are used in turn for `clients` clients. False
 * when the file cannot be read, a word is no address, or there is none at all. */
bool audience_read(struct audience *audience, const char *path, uint32_t clients);

/* The address of the event with this sequence number: random, evenly, and the same in every run. */
uint32_t audience_address(const struct audience *audience, uint32_t sequence);

struct owed_item {
    uint32_t sequence;
    bool waited_for; /* the client was reading when it was published */
};

struct owed {
    struct owed_item *items; /* a ring */
    uint32_t start, count, room;
};

void owed_push(struct owed *owed, uint32_t sequence, bool waited_for);

/* Whether this one is among them: they are in ascending order. */
bool owed_holds(const struct owed *owed, uint32_t sequence);

/* Take the oldest one; there must be one. */
struct owed_item owed_pop(struct owed *owed);
void owed_free(struct owed *owed);

#endif
