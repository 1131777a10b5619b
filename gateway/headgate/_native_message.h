/* The message of a logged event on a channel: `hg1 <epoch> <offset> <time_ms> <id>\n<payload>` (events/event.py has the format).
 *
 * The usual form of it: in one epoch, without a trace or a sender, and with numbers that have no leading zero. The payload is not looked at.
 */
#ifndef HEADGATE_NATIVE_MESSAGE_H
#define HEADGATE_NATIVE_MESSAGE_H

#include <string.h>

enum {
    MAX_HEADER_BYTES = 384, /* event.MAX_HEADER_BYTES */
    MAX_ID_LENGTH = 128,    /* event.MAX_ID_LENGTH */
    MAX_DIGITS = 16,        /* of an offset and of a time */
    EPOCH_LENGTH = 16,
};

struct span {
    const char *start;
    size_t size;
};

struct message {
    struct span topic, id, data;
    long long offset, time_ms;
};

static int is_of_id(unsigned char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
           byte == '-' || byte == '_' || byte == '.' || byte == ':' || byte == '~';
}

/* Read a number without a leading zero; return where it ends, which is at `stop`, or NULL. */
static const char *read_number(const char *at, const char *end, char stop, long long *number)
{
    const char *from = at;
    long long value = 0;
    while (at < end && *at >= '0' && *at <= '9' && at - from < MAX_DIGITS)
        value = value * 10 + (*at++ - '0');
    if (at == from || *from == '0' || at == end || *at != stop)
        return NULL;
    *number = value;
    return at;
}

/* Read `hg1 <epoch> <offset> <time_ms> <id>\n<payload>` of this epoch; return whether it is that. */
static int read_message(struct span text, const char *epoch, struct message *message)
{
    static const char TAG[] = "hg1 ";
    const size_t tag = sizeof TAG - 1, fixed = tag + EPOCH_LENGTH + 1;
    if (text.size <= fixed || memcmp(text.start, TAG, tag) || memcmp(text.start + tag, epoch, EPOCH_LENGTH) ||
        text.start[fixed - 1] != ' ')
        return 0;
    const char *end = text.start + text.size;
    const char *at = read_number(text.start + fixed, end, ' ', &message->offset);
    if (!at || !(at = read_number(at + 1, end, ' ', &message->time_ms)))
        return 0;
    const char *id = ++at;
    while (at < end && is_of_id((unsigned char)*at))
        at++;
    message->id = (struct span){id, (size_t)(at - id)};
    if (at == end || *at != '\n' || !message->id.size || message->id.size > MAX_ID_LENGTH || at - text.start >= MAX_HEADER_BYTES)
        return 0;
    message->data = (struct span){at + 1, (size_t)(end - at - 1)};
    return 1;
}

#endif
