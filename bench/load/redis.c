#include "redis.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(fd, (struct sockaddr *)&address, sizeof address) ? -1 : fd;
}

static int connect_tcp(const char *text)
{
    char host[64];
    int port;
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (sscanf(text, "%63[^:]:%d", host, &port) != 2 || inet_pton(AF_INET, host, &address.sin_addr) != 1)
        return -1;
    address.sin_port = htons((uint16_t)port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(fd, (struct sockaddr *)&address, sizeof address) ? -1 : fd;
}

void redis_connect(struct redis *r, const char *address)
{
    memset(r, 0, sizeof *r);
    r->out.limit = MAX_QUEUED_BYTES;
    r->fd = address[0] == '/' ? connect_unix(address) : connect_tcp(address);
    if (r->fd < 0) {
        fprintf(stderr, "cannot connect to Redis at %s: %s\n", address, strerror(errno));
        exit(2);
    }
    fcntl(r->fd, F_SETFL, fcntl(r->fd, F_GETFL) | O_NONBLOCK);
}

bool redis_flush(struct redis *r)
{
    while (r->out.length) {
        ssize_t sent = send(r->fd, r->out.bytes + r->out.start, r->out.length, MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        buffer_consume(&r->out, (size_t)sent);
    }
    return true;
}

bool redis_send(struct redis *r, const void *bytes, size_t length)
{
    return buffer_append(&r->out, bytes, length) && redis_flush(r);
}

bool redis_fill(struct redis *r)
{
    char chunk[65536];
    ssize_t got = recv(r->fd, chunk, sizeof chunk, 0);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    return buffer_append(&r->in, chunk, (size_t)got);
}

static const char *line_end(const char *p, const char *end)
{
    const char *found = memchr(p, '\n', (size_t)(end - p));
    return found ? found + 1 : NULL;
}

const char *resp_end(const char *p, const char *end)
{
    const char *next = p < end ? line_end(p, end) : NULL;
    if (!next)
        return NULL;
    long count = (*p == '$' || *p == '*') ? strtol(p + 1, NULL, 10) : 0;
    if (*p == '$' && count >= 0)
        return end - next >= count + 2 ? next + count + 2 : NULL;
    if (*p == '*')
        for (long i = 0; i < count && next; i++)
            next = resp_end(next, end);
    return next;
}

const char *resp_bulk(const char **p, const char *end, size_t *length)
{
    const char *whole = *p < end && **p == '$' ? resp_end(*p, end) : NULL;
    if (!whole)
        return NULL;
    const char *bytes = line_end(*p, end);
    if (whole < bytes + 2)
        return NULL; /* the null bulk string "$-1" */
    *length = (size_t)(whole - 2 - bytes);
    *p = whole;
    return bytes;
}

bool redis_read_replies(struct redis *r)
{
    if (!redis_fill(r))
        return false;
    const char *start = r->in.bytes + r->in.start, *end = start + r->in.length, *p = start, *next;
    while ((next = resp_end(p, end))) {
        r->errors += *p == '-';
        p = next;
    }
    buffer_consume(&r->in, (size_t)(p - start));
    return true;
}
