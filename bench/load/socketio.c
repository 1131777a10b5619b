#include "socketio.h"

#include <stdio.h>
#include <string.h>

const char *frame_read(const char *p, const char *end, struct frame *frame)
{
    if (end - p < 2)
        return NULL;
    uint64_t length = (unsigned char)p[1] & 0x7f;
    size_t head = length == 126 ? 4 : length == 127 ? 10 : 2;
    if ((size_t)(end - p) < head)
        return NULL;
    if (head > 2) {
        length = 0;
        for (size_t i = 2; i < head; i++)
            length = length << 8 | (unsigned char)p[i];
    }
    if ((uint64_t)(end - p) - head < length)
        return NULL;
    *frame = (struct frame){p[0] & 0x0f, p + head, length};
    return p + head + length;
}

static size_t write_head(unsigned char *out, enum opcode opcode, size_t length, unsigned char mask_bit)
{
    out[0] = (unsigned char)(0x80 | opcode);
    if (length < 126) {
        out[1] = (unsigned char)(mask_bit | length);
        return 2;
    }
    size_t bytes = length < 65536 ? 2 : 8;
    out[1] = (unsigned char)(mask_bit | (bytes == 2 ? 126 : 127));
    for (size_t i = 0; i < bytes; i++)
        out[2 + i] = (unsigned char)(length >> 8 * (bytes - 1 - i));
    return 2 + bytes;
}

size_t frame_write_head(char *out, size_t payload_length)
{
    return write_head((unsigned char *)out, TEXT, payload_length, 0);
}

size_t frame_write_masked(char *out, enum opcode opcode, const char *payload, size_t length)
{
    static uint32_t counter = 0x9e3779b9;
    unsigned char mask[4];
    counter = counter * 1664525 + 1013904223;
    memcpy(mask, &counter, sizeof mask);
    size_t at = write_head((unsigned char *)out, opcode, length, 0x80);
    memcpy(out + at, mask, sizeof mask);
    at += sizeof mask;
    for (size_t i = 0; i < length; i++)
        out[at + i] = (char)(payload[i] ^ mask[i & 3]);
    return at + length;
}

size_t upgrade_request(char *out, size_t room, const char *host, int port, const char *path)
{
    int length = snprintf(out, room,
                          "GET %s HTTP/1.1\r\nHost: %s:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                          "Origin: http://%s:%d\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " WEBSOCKET_KEY "\r\n\r\n",
                          path, host, port, host, port);
    return length > 0 && (size_t)length < room ? (size_t)length : 0;
}
