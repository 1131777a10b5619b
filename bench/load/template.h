/* One publish command as raw RESP bytes, with a marker in its payload that is filled in before every send.
 *
 * The marker is `~<sequence, 10 digits>:<planned time, 20 digits of ns>~`: fixed width, so that no length in the RESP
 * command or in the adapter's message around it ever changes. The harness writes the template; this program knows no
 * adapter's format. '~' occurs nowhere else in what the servers send before the marker.
 *
 * Where events have an address, each `addr000000` in the command gets the digits of the event's own: the name of a topic,
 * room or channel, again of fixed width.
 *
 * A command that carries an id has EVENT_ID where a publisher's would be: each event gets 32 hexadecimal digits of its own, as random
 * as a publisher's. */
#ifndef BENCH_TEMPLATE_H
#define BENCH_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MARKER_BYTES 33
#define ADDRESS_PREFIX "addr"
#define ADDRESS_DIGITS 6
#define MAX_ADDRESSES 1000000u

/* What stands for the id of an event in a template. */
#define EVENT_ID "idididididididididididididididid"
#define EVENT_ID_BYTES (sizeof EVENT_ID - 1)

enum { MAX_ADDRESS_PLACES = 8 };

struct template {
    char *bytes;
    size_t length, marker; /* marker: where it starts */
    size_t places[MAX_ADDRESS_PLACES]; /* where the digits of each address start */
    unsigned place_count;
    size_t id;                         /* where the id starts; 0 without one */
    uint64_t seed;                     /* of the ids: another one in each generator */
};

/* Read a template from a file; false (with a message on stderr) when it cannot be read or holds no marker. */
bool template_read(struct template *t, const char *path);

/* Write sequence and planned time into the marker, and an id that no other event has. */
void template_fill(struct template *t, uint32_t sequence, uint64_t planned_ns);

/* Write an address (below MAX_ADDRESSES) into each of its places. */
void template_address(struct template *t, uint32_t address);

/* Find the first marker in text; returns the byte after it, or NULL when there is none. */
const char *marker_find(const char *text, const char *end, uint32_t *sequence, uint64_t *planned_ns);

#endif
