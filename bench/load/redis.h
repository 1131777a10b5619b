/* A Redis connection that never blocks after connecting: commands go into a buffer, replies are counted, not kept.
 * Also the few RESP2 readers that the sink needs for its subscription. */
#ifndef BENCH_REDIS_H
#define BENCH_REDIS_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"

/* The most that waits for a late Redis; at 1 MiB an event this is 5 s of 100 events per second. */
#define MAX_QUEUED_BYTES ((size_t)512 << 20)

struct redis {
    int fd;
    struct buffer out, in;
    uint64_t errors;
};

/* Connect to a Unix socket (an address that starts with '/') or host:port; exits with a message when it cannot. */
void redis_connect(struct redis *r, const char *address);

/* Queue raw RESP bytes and send what the socket takes. False when the connection or its buffer (MAX_QUEUED_BYTES) is lost. */
bool redis_send(struct redis *r, const void *bytes, size_t length);

/* Send what waits; false when the connection is lost. */
bool redis_flush(struct redis *r);

/* Read what has come and count whole replies (and error replies). False when the connection is lost. */
bool redis_read_replies(struct redis *r);

/* Read what has come into r->in, uncounted; false when the connection is lost. */
bool redis_fill(struct redis *r);

/* The end of the RESP value that starts at `p`, or NULL when it is not all there. */
const char *resp_end(const char *p, const char *end);

/* The bytes of a bulk string at `p` (advanced past it): NULL when `p` is no whole bulk string. */
const char *resp_bulk(const char **p, const char *end, size_t *length);

#endif
