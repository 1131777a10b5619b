/* A growing byte buffer with a cap: appended at the end, consumed from the front. */
#ifndef BENCH_BUFFER_H
#define BENCH_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *bytes;
    size_t start, length, room; /* the content is bytes[start … start + length) */
    size_t limit;               /* content above this is refused; 0 means 64 MiB */
};

/* Append; false when the content would exceed the limit (nothing is appended then). */
bool buffer_append(struct buffer *b, const void *bytes, size_t length);
void buffer_consume(struct buffer *b, size_t length);
void buffer_free(struct buffer *b);

#endif
