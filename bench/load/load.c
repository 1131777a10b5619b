/* The load generator: many raw WebSocket clients, one publisher, one thread. Commands come on standard input, one per
 * line; each is answered with one line of JSON on standard output. The end of input ends the program.
 *
 *   template FILE                    publish command to use from now on (see template.h)
 *   connect COUNT PARALLEL LIMIT_MS [EVENTS]  more clients; the time until each has joined, and all have had EVENTS together
 *   window W WARM_MS MEASURE_MS      closed loop: W events under way
 *   open RATE MEASURE_MS             fixed schedule, RATE events per second
 *   pause RATE MEASURE_MS PAUSE_MS   the same, and in its middle no client reads for PAUSE_MS; it is live again with the first event
 *                                    within 100 ms of its planned time; latencies are those before, and again from 1 s after that
 *   burst SIZE TIMES EVERY_MS        SIZE events at once, again every EVERY_MS
 *   idle MS                          answer pings
 *   stall COUNT                      the first COUNT clients stop reading
 *   unstall MS [COUNT]               they go on; counts what they then get within MS, or until that is COUNT events
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>

#include "clock.h"
#include "pace.h"

static const char usage[] =
    "usage: load --port PORT --connects FILE --ready TEXT [options] < commands\n"
    "  --host HOST        address of the server (127.0.0.1)\n"
    "  --path PATH        of the WebSocket (/socket.io/?EIO=4&transport=websocket)\n"
    "  --connects FILE    CONNECT texts, one per line used in turn; a record separator (0x1e) stands for a newline\n"
    "  --audience FILE    addresses that each client listens to, one line per client; without it every event is for all\n"
    "  --ready TEXT       what the text that says `joined` starts with\n"
    "  --redis ADDRESS    /path of a Unix socket, or host:port; needed to publish\n"
    "  --speaks-first     no Engine.IO: the client begins, TEXT may stand anywhere, an empty object is the ping\n"
    "  --clients COUNT    room for so many (10000)\n"
    "  --server-pid PID,… read the CPU time of these processes before and after each run\n"
    "  --redis-pid PID    and the CPU time of this one, apart\n"
    "  --server-core N    and how busy this core was, with anybody's work\n";

enum { RECORD_SEPARATOR = 0x1e };

static struct swarm swarm = {.options = {.host = "127.0.0.1", .path = "/socket.io/?EIO=4&transport=websocket", .server_core = -1}};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(2);
}

static void read_connects(const char *path)
{
    char line[MAX_CONNECT_BYTES];
    FILE *file = fopen(path, "r");
    if (!file)
        fail(path, strerror(errno));
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        for (char *p = line; (p = strchr(p, RECORD_SEPARATOR));)
            *p = '\n';
        swarm.connects = realloc(swarm.connects, (swarm.connect_count + 1) * sizeof *swarm.connects);
        swarm.connects[swarm.connect_count++] = (struct line){strdup(line), strlen(line)};
    }
    fclose(file);
    if (!swarm.connect_count)
        fail(path, "no CONNECT text");
}

/* Numbers with commas between them. The one after the last is left as it was, 0. */
static void read_numbers(int *numbers, char *text)
{
    unsigned count = 0;
    for (char *word = strtok(text, ","); word && count < MAX_SERVERS - 1; word = strtok(NULL, ","))
        numbers[count++] = atoi(word);
}

static void read_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"host", 1, 0, 'h'},    {"port", 1, 0, 'p'},    {"path", 1, 0, 'P'},    {"connects", 1, 0, 'c'}, {"ready", 1, 0, 'r'},
        {"redis", 1, 0, 'R'},   {"clients", 1, 0, 'n'}, {"server-pid", 1, 0, 's'}, {"server-core", 1, 0, 'C'}, {"speaks-first", 0, 0, 'f'},
        {"audience", 1, 0, 'a'}, {"redis-pid", 1, 0, 'q'}, {0, 0, 0, 0},
    };
    struct options *o = &swarm.options;
    const char *connects = NULL, *audience = NULL;
    swarm.room = 10000;
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (option) {
        case 'a': audience = optarg; break;
        case 'h': o->host = optarg; break;
        case 'p': o->port = atoi(optarg); break;
        case 'P': o->path = optarg; break;
        case 'c': connects = optarg; break;
        case 'r': o->ready = optarg; break;
        case 'R': o->redis = optarg; break;
        case 'f': o->speaks_first = true; break;
        case 'n': swarm.room = (unsigned)atoi(optarg); break;
        case 'C': o->server_core = atoi(optarg); break;
        case 'q': o->redis_pid = atoi(optarg); break;
        case 's': read_numbers(o->server_pids, optarg); break;
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (!o->port || !connects || !o->ready || optind != argc) {
        fputs(usage, stderr);
        exit(2);
    }
    read_connects(connects);
    swarm.clients = calloc(swarm.room, sizeof *swarm.clients);
    if (audience && !audience_read(&swarm.audience, audience, swarm.room))
        fail(audience, "no list of addresses");
}

/* Raise the soft limit on open files to the hard one: one client is one. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void print_tally(const struct tally *t)
{
    printf(",\"published\":%llu,\"deliveries\":%llu,\"bytes\":%llu,\"missing\":%llu,\"late\":%llu,\"caught_up\":%llu",
           (unsigned long long)t->published, (unsigned long long)t->deliveries, (unsigned long long)t->bytes,
           (unsigned long long)t->missing, (unsigned long long)t->late, (unsigned long long)t->caught_up);
    printf(",\"gaps\":%llu,\"backpressure\":%llu", (unsigned long long)t->gaps, (unsigned long long)t->backpressure);
}

static void print_answer(const char *command, const struct run *run, const struct histogram *durations)
{
    printf("{\"command\":\"%s\",\"outcome\":\"%s\"", command, run->outcome ? run->outcome : "ok");
    printf(",\"seconds\":%.6f,\"server_cpu_s\":%.6f,\"redis_cpu_s\":%.6f,\"load_cpu_s\":%.6f,\"server_core_busy_s\":%.2f", run->seconds,
           run->server_cpu_s, run->redis_cpu_s, run->load_cpu_s, run->core_busy_s);
    printf(",\"clients\":%u,\"stalled\":%u,\"failed\":%u,\"closed\":%u", swarm.ready, swarm.stalled, swarm.failed, swarm.closed);
    print_tally(&run->tally);
    printf(",\"undelivered\":%llu,\"worst_lateness_us\":%.1f", (unsigned long long)run->undelivered,
           (double)run->worst_lateness_ns / 1e3);
    if (run->is_paused)
        printf(",\"live_again_ms\":%.1f", run->live_again_ms);
    printf(",\"redis_errors\":%llu", (unsigned long long)swarm.redis.errors);
    printf(",\"first_failure\":");
    json_print(swarm.first_failure, stdout);
    if (durations) {
        printf(",\"microseconds\":");
        histogram_print(durations, stdout);
    }
    puts("}");
    fflush(stdout);
}

static void stall(unsigned count)
{
    for (unsigned i = 0; i < swarm.started; i++) {
        struct client *client = &swarm.clients[i];
        bool before = client->stalled;
        client_stall(&swarm, client, i < count);
        if (client->state == READY)
            swarm.stalled += client->stalled - before;
    }
}

static void obey(char *line)
{
    char command[16] = "", path[1024];
    double a = 0, b = 0, c = 0, d = 0;
    struct run run = {0};
    const struct histogram *durations = NULL;
    int words = sscanf(line, "%15s %lf %lf %lf %lf", command, &a, &b, &c, &d);
    if (!strcmp(command, "template") && sscanf(line, "%*s %1023[^\n]", path) == 1) {
        run.outcome = template_read(&swarm.template, path) ? NULL : "no_template";
    } else if (!strcmp(command, "connect") && words >= 4) {
        run_connect(&swarm, &run, (unsigned)a, (unsigned)b, (uint64_t)c, (uint64_t)d);
        durations = &swarm.handshake;
    } else if (!strcmp(command, "window") && words == 4 && a >= 1 && a < RING) {
        run_window(&swarm, &run, (uint32_t)a, (uint64_t)b, (uint64_t)c);
        durations = &swarm.latency;
    } else if (!strcmp(command, "open") && words == 3 && a > 0) {
        run_open(&swarm, &run, a, (uint64_t)b);
        durations = &swarm.latency;
    } else if (!strcmp(command, "pause") && words == 4 && a > 0 && b > c) {
        run_paused(&swarm, &run, a, (uint64_t)b, (uint64_t)c);
        durations = &swarm.latency;
    } else if (!strcmp(command, "burst") && words == 4 && a >= 1 && a < RING) {
        run_burst(&swarm, &run, (uint32_t)a, (uint32_t)b, (uint64_t)c);
        durations = &swarm.latency;
    } else if (!strcmp(command, "idle") && words == 2) {
        run_idle(&swarm, &run, (uint64_t)a, 0);
    } else if (!strcmp(command, "stall") && words == 2) {
        stall((unsigned)a);
    } else if (!strcmp(command, "unstall") && words >= 2) {
        /* One command, so that nothing of what they catch up on is read before the counting starts. */
        stall(0);
        run_idle(&swarm, &run, (uint64_t)a, (uint64_t)b);
    } else {
        run.outcome = "unknown_command";
    }
    print_answer(command, &run, durations);
}

int main(int argc, char **argv)
{
    static char pending[2048];
    size_t length = 0;
    read_options(argc, argv);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    raise_file_limit();
    swarm_start(&swarm);
    while (!swarm.quitting) {
        if (!swarm_turn(&swarm, now_ns() + NS_PER_S, true))
            continue;
        ssize_t got = read(STDIN_FILENO, pending + length, sizeof pending - 1 - length);
        if (got <= 0)
            break;
        pending[length += (size_t)got] = 0;
        for (char *end; !swarm.quitting && (end = strchr(pending, '\n'));) {
            *end = 0;
            obey(pending);
            length -= (size_t)(end + 1 - pending);
            memmove(pending, end + 1, length + 1);
        }
    }
    for (unsigned i = 0; i < swarm.started; i++)
        client_close(&swarm, &swarm.clients[i], NULL);
    return 0;
}
