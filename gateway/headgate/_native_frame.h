/* The frame of an event, as events/wire/frames.py writes it, in a buffer that grows. */
#ifndef HEADGATE_NATIVE_FRAME_H
#define HEADGATE_NATIVE_FRAME_H

#include <Python.h>
#include <string.h>

#include "_native_message.h"

enum {
    MAX_RUN_BYTES = 65536,   /* of the frames of a run: fanout.MAX_SLICE_BYTES */
    MAX_KEPT_BYTES = 262144, /* of a buffer that is kept for the next run */
    MAX_TOPIC_BYTES = 255,   /* topic.MAX_TOPIC_BYTES */
};

struct buffer {
    char *bytes;
    size_t size, room;
};

static int buffer_reserve(struct buffer *buffer, size_t more)
{
    size_t wanted = buffer->size + more;
    if (wanted <= buffer->room)
        return 0;
    wanted = wanted < MAX_RUN_BYTES ? MAX_RUN_BYTES : wanted;
    char *bytes = PyMem_Realloc(buffer->bytes, wanted);
    if (!bytes) {
        PyErr_NoMemory();
        return -1;
    }
    buffer->bytes = bytes;
    buffer->room = wanted;
    return 0;
}

/* Forget what is in it; give back what an unusually large event took. */
static void buffer_clear(struct buffer *buffer)
{
    buffer->size = 0;
    if (buffer->room > MAX_KEPT_BYTES) {
        PyMem_Free(buffer->bytes);
        *buffer = (struct buffer){0};
    }
}

static char *put(char *to, const char *from, size_t size)
{
    memcpy(to, from, size);
    return to + size;
}

#define PUT_TEXT(to, text) put((to), (text), sizeof(text) - 1)

static char *put_number(char *to, long long number)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    return put(to, digits + at, sizeof digits - at);
}

/* Append a text frame (RFC 6455 section 5.2) of `42/<namespace>,["event",…]`; `mark` ends its meta, and `skip` gets the size of the
 * WebSocket header. Return -1 with the exception when there is no memory. */
static int write_frame(struct buffer *frames, PyObject *namespace, const struct message *message, const char *mark, size_t *skip)
{
    static const char FIXED[] = "42/,[\"event\",\"\",,{\"id\":\"\",\"time\":,\"offset\":}]";
    size_t namespace_size = (size_t)PyBytes_GET_SIZE(namespace);
    char numbers[2 * MAX_DIGITS];
    size_t time_size = (size_t)(put_number(numbers, message->time_ms) - numbers);
    size_t offset_size = (size_t)(put_number(numbers + time_size, message->offset) - numbers) - time_size;
    size_t size = sizeof FIXED - 1 + namespace_size + message->topic.size + message->data.size + message->id.size + time_size +
                  offset_size + strlen(mark);
    *skip = size < 126 ? 2 : size < 65536 ? 4 : 10;
    if (buffer_reserve(frames, *skip + size))
        return -1;
    char *to = frames->bytes + frames->size;
    *to++ = (char)0x81;
    *to++ = (char)(*skip == 2 ? size : *skip == 4 ? 126 : 127);
    for (size_t bits = *skip == 2 ? 0 : (*skip - 2) * 8; bits; bits -= 8)
        *to++ = (char)(size >> (bits - 8) & 0xFF);
    to = PUT_TEXT(to, "42/");
    to = put(to, PyBytes_AS_STRING(namespace), namespace_size);
    to = PUT_TEXT(to, ",[\"event\",\"");
    to = put(to, message->topic.start, message->topic.size);
    to = PUT_TEXT(to, "\",");
    to = put(to, message->data.start, message->data.size);
    to = PUT_TEXT(to, ",{\"id\":\"");
    to = put(to, message->id.start, message->id.size);
    to = PUT_TEXT(to, "\",\"time\":");
    to = put(to, numbers, time_size);
    to = PUT_TEXT(to, ",\"offset\":");
    to = put(to, numbers + time_size, offset_size);
    to = put(to, mark, strlen(mark));
    PUT_TEXT(to, "}]");
    frames->size += *skip + size;
    return 0;
}

static int is_text(PyObject *bytes, const char *text)
{
    return (size_t)PyBytes_GET_SIZE(bytes) == strlen(text) && !memcmp(PyBytes_AS_STRING(bytes), text, strlen(text));
}

#endif
