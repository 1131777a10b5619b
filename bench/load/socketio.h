/* The bytes of a WebSocket client (RFC 6455): the upgrade request, masked text frames out, frame headers in. */
#ifndef BENCH_SOCKETIO_H
#define BENCH_SOCKETIO_H

#include <stddef.h>
#include <stdint.h>

/* RFC 6455 section 1.3 uses this key as its example; its answer is known, so SHA-1 is not needed here. */
#define WEBSOCKET_KEY "dGhlIHNhbXBsZSBub25jZQ=="
#define WEBSOCKET_ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

enum opcode { CONTINUATION = 0, TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10 };

struct frame {
    enum opcode opcode;
    const char *payload;
    size_t length;
};

/* Read one unmasked frame from `p`; returns the byte after it, or NULL when it is not all there yet. */
const char *frame_read(const char *p, const char *end, struct frame *frame);

/* Bytes that a masked frame of this payload takes at most. */
#define MASKED_FRAME_BYTES(length) ((length) + 14)

/* Write one masked frame; returns its length. The key changes with every frame, by a counter: not secret, only masked. */
size_t frame_write_masked(char *out, enum opcode opcode, const char *payload, size_t length);

/* Write the head of an unmasked text frame; returns its length (at most 10). */
size_t frame_write_head(char *out, size_t payload_length);

/* Write the upgrade request; returns its length, 0 when it does not fit. */
size_t upgrade_request(char *out, size_t room, const char *host, int port, const char *path);

#endif
