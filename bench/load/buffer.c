#include "buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool buffer_append(struct buffer *b, const void *bytes, size_t length)
{
    size_t limit = b->limit ? b->limit : (size_t)64 << 20;
    if (b->length + length > limit)
        return false;
    if (b->start + b->length + length > b->room) {
        /* Only when at least half is consumed: moving a long content for each append would take the core from Redis. */
        if (b->start >= b->length) {
            memmove(b->bytes, b->bytes + b->start, b->length);
            b->start = 0;
        }
        if (b->start + b->length + length > b->room) {
            size_t room = b->room ? b->room : 256;
            while (room < b->start + b->length + length)
                room *= 2;
            char *grown = realloc(b->bytes, room);
            if (!grown)
                return false;
            b->bytes = grown;
            b->room = room;
        }
    }
    memcpy(b->bytes + b->start + b->length, bytes, length);
    b->length += length;
    return true;
}

void buffer_consume(struct buffer *b, size_t length)
{
    b->start += length;
    b->length -= length;
    if (!b->length)
        b->start = 0;
}

void buffer_free(struct buffer *b)
{
    free(b->bytes);
    *b = (struct buffer){.limit = b->limit};
}
