/* The HTTP load: kept connections, each with one POST under way; the next goes out when the answer has come.
 *
 *   http --port PORT --path PATH --body FILE [options]
 *
 * The answer is one line of JSON on standard output. An answer counts as an error unless it is 2xx, not 207 (some of a batch were
 * refused), and has no member "error" in its body (Centrifugo refuses with 200). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buffer.h"
#include "clock.h"
#include "histogram.h"

static const char usage[] =
    "usage: http --port PORT --path PATH --body FILE [options]\n"
    "  --host HOST        address of the server (127.0.0.1)\n"
    "  --tokens FILE      bearer tokens, one per line, used in turn by the connections\n"
    "  --connections N    (64)\n"
    "  --warm MS          not measured (1000)\n"
    "  --measure MS       measured (5000)\n"
    "  --at-least N       go on measuring until each connection has had so many answers (0)\n"
    "  --server-pid PID   read this process's CPU time before and after\n"
    "  --server-core N    and how busy this core was, with anybody's work\n";

enum { MAX_REQUEST_BYTES = 1 << 20, MAX_TOKENS = 4096, MAX_ERROR_BYTES = 300, IDLE_MS = 100 };

struct connection {
    int fd;
    char *request;
    size_t length, sent;
    uint64_t asked_ns, answers;
    struct buffer in;
};

static struct {
    const char *host, *path, *body, *tokens;
    int port, server_pid, server_core;
    unsigned connections;
    uint64_t warm_ms, measure_ms, at_least;
} options = {.host = "127.0.0.1", .server_core = -1, .connections = 64, .warm_ms = 1000, .measure_ms = 5000};

static int poller;
static bool measuring;
static uint64_t answers, errors, satisfied; /* satisfied: connections that have had `at_least` answers */
static char first_error[MAX_ERROR_BYTES];
static struct histogram latency;

static void fail(const char *about, const char *why)
{
    fprintf(stderr, "%s: %s\n", about, why);
    exit(2);
}

static char *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail(path, strerror(errno));
    char *bytes = malloc(MAX_REQUEST_BYTES);
    *length = fread(bytes, 1, MAX_REQUEST_BYTES - 1, file);
    bytes[*length] = 0;
    fclose(file);
    return bytes;
}

static void make_request(struct connection *c, const char *body, size_t body_length, const char *token)
{
    c->request = malloc(body_length + MAX_TOKENS + 1024);
    int head = sprintf(c->request, "POST %s HTTP/1.1\r\nHost: %s:%d\r\nContent-Type: application/json\r\n%s%s%sContent-Length: %zu\r\n\r\n",
                       options.path, options.host, options.port, token ? "Authorization: Bearer " : "", token ? token : "",
                       token ? "\r\n" : "", body_length);
    memcpy(c->request + head, body, body_length);
    c->length = (size_t)head + body_length;
}

static void watch(struct connection *c, uint32_t events, int operation)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    epoll_ctl(poller, operation, c->fd, &event);
}

static void push(struct connection *c)
{
    ssize_t sent = send(c->fd, c->request + c->sent, c->length - c->sent, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        fail("send", strerror(errno));
    bool before = c->sent < c->length;
    c->sent += sent > 0 ? (size_t)sent : 0;
    if (before && c->sent < c->length)
        watch(c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
}

static void ask(struct connection *c)
{
    c->sent = 0;
    c->asked_ns = now_ns();
    push(c);
}

static void open_connection(struct connection *c)
{
    int on = 1;
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, options.host, &server.sin_addr) != 1)
        fail(options.host, "not an address");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (struct sockaddr *)&server, sizeof server))
        fail("connect", strerror(errno));
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLLIN, EPOLL_CTL_ADD);
    ask(c);
}

static void count_answer(struct connection *c, const char *head, const char *body, size_t body_length)
{
    bool good = head[9] == '2' && memcmp(head + 9, "207", 3) && !memmem(body, body_length, "\"error\"", 7);
    if (!good && !first_error[0])
        snprintf(first_error, sizeof first_error, "%.12s %.*s", head, (int)(body_length < 200 ? body_length : 200), body);
    if (!measuring)
        return;
    answers += good;
    errors += !good;
    satisfied += ++c->answers == options.at_least;
    histogram_record(&latency, now_ns() - c->asked_ns);
}

/* Take one whole answer from the front; false when it is not all there. Chunks are not put together: a body of JSON holds no CR LF, so
 * the empty chunk is found as text, and what counts as an error may not stand on the edge of two. */
static bool take_answer(struct connection *c)
{
    const char *head = c->in.bytes + c->in.start, *blank = c->in.length ? memmem(head, c->in.length, "\r\n\r\n", 4) : NULL;
    if (!blank)
        return false;
    unsigned long body_length = 0;
    bool bounded = false, chunked = false;
    for (const char *line = head; line < blank; line = (const char *)memchr(line, '\n', (size_t)(blank + 2 - line)) + 1)
        if (!strncasecmp(line, "content-length:", 15)) {
            body_length = strtoul(line + 15, NULL, 10);
            bounded = true;
        } else if (!strncasecmp(line, "transfer-encoding: chunked", 26)) {
            chunked = true;
        }
    if (chunked) {
        const char *from = blank + 2, *last = memmem(from, c->in.length - (size_t)(from - head), "\r\n0\r\n\r\n", 7);
        if (!last)
            return false;
        body_length = (size_t)(last + 7 - (blank + 4));
    } else if (!bounded)
        fail("answer without Content-Length", "this load cannot read it");
    size_t whole = (size_t)(blank + 4 - head) + body_length;
    if (c->in.length < whole)
        return false;
    count_answer(c, head, blank + 4, body_length);
    buffer_consume(&c->in, whole);
    return true;
}

static void hear(struct connection *c)
{
    static char chunk[65536];
    ssize_t got = recv(c->fd, chunk, sizeof chunk, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) { /* a server may end a kept connection: that is an error, and the load goes on */
        if (!first_error[0])
            snprintf(first_error, sizeof first_error, "closed by the server");
        errors++;
        close(c->fd);
        buffer_free(&c->in);
        open_connection(c);
        return;
    }
    if (!buffer_append(&c->in, chunk, (size_t)got))
        fail("answer", "too large");
    if (take_answer(c))
        ask(c);
}

static void turn(void)
{
    struct epoll_event events[256];
    int count = epoll_wait(poller, events, 256, IDLE_MS);
    for (int i = 0; i < count; i++) {
        struct connection *c = events[i].data.ptr;
        if (events[i].events & EPOLLOUT && c->sent < c->length) {
            push(c);
            if (c->sent == c->length)
                watch(c, EPOLLIN, EPOLL_CTL_MOD);
        }
        if (events[i].events & ~(uint32_t)EPOLLOUT)
            hear(c);
    }
}

static void read_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"host", 1, 0, 'h'},    {"port", 1, 0, 'p'},    {"path", 1, 0, 'P'},       {"body", 1, 0, 'b'},        {"tokens", 1, 0, 't'},
        {"connections", 1, 0, 'n'}, {"warm", 1, 0, 'w'}, {"measure", 1, 0, 'm'}, {"server-pid", 1, 0, 's'}, {"server-core", 1, 0, 'C'},
        {"at-least", 1, 0, 'l'}, {0, 0, 0, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (option) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = atoi(optarg); break;
        case 'P': options.path = optarg; break;
        case 'b': options.body = optarg; break;
        case 't': options.tokens = optarg; break;
        case 'n': options.connections = (unsigned)atoi(optarg); break;
        case 'w': options.warm_ms = strtoull(optarg, NULL, 10); break;
        case 'm': options.measure_ms = strtoull(optarg, NULL, 10); break;
        case 'l': options.at_least = strtoull(optarg, NULL, 10); break;
        case 's': options.server_pid = atoi(optarg); break;
        case 'C': options.server_core = atoi(optarg); break;
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (!options.port || !options.path || !options.body || !options.connections || optind != argc) {
        fputs(usage, stderr);
        exit(2);
    }
}

static void open_all(void)
{
    char *tokens[MAX_TOKENS];
    unsigned token_count = 0;
    size_t body_length, ignored;
    char *body = read_file(options.body, &body_length);
    if (options.tokens)
        for (char *p = strtok(read_file(options.tokens, &ignored), "\n"); p && token_count < MAX_TOKENS; p = strtok(NULL, "\n"))
            tokens[token_count++] = p;
    struct connection *all = calloc(options.connections, sizeof *all);
    for (unsigned i = 0; i < options.connections; i++) {
        make_request(&all[i], body, body_length, token_count ? tokens[i % token_count] : NULL);
        open_connection(&all[i]);
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    poller = epoll_create1(EPOLL_CLOEXEC);
    histogram_clear(&latency);
    open_all();
    uint64_t begin = now_ns() + options.warm_ms * NS_PER_MS;
    while (now_ns() < begin)
        turn();
    measuring = true;
    uint64_t start = now_ns(), end = start + options.measure_ms * NS_PER_MS;
    double server = process_cpu_s(options.server_pid), own = own_cpu_s(), busy = core_busy_s(options.server_core);
    while (now_ns() < end || (options.at_least && satisfied < options.connections))
        turn();
    double seconds = (double)(now_ns() - start) / NS_PER_S;
    server = process_cpu_s(options.server_pid) - server;
    printf("{\"outcome\":\"ok\",\"seconds\":%.6f,\"server_cpu_s\":%.3f,\"load_cpu_s\":%.6f,\"server_core_busy_s\":%.2f", seconds, server,
           own_cpu_s() - own, core_busy_s(options.server_core) - busy);
    printf(",\"answers\":%llu,\"errors\":%llu,\"first_error\":", (unsigned long long)answers, (unsigned long long)errors);
    json_print(first_error, stdout);
    printf(",\"microseconds\":");
    histogram_print(&latency, stdout);
    puts("}");
    return 0;
}
