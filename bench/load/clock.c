#include "clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static double seconds(struct timeval tv)
{
    return (double)tv.tv_sec + (double)tv.tv_usec / 1e6;
}

double own_cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double process_cpu_s(int pid)
{
    clockid_t clock;
    struct timespec used;
    if (pid <= 0 || clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &used))
        return -1;
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

double core_busy_s(int core)
{
    char line[512];
    double busy = -1;
    FILE *file = core >= 0 ? fopen("/proc/stat", "r") : NULL;
    while (file && busy < 0 && fgets(line, sizeof line, file)) {
        int number;
        unsigned long user, nice, system, idle, wait, irq, softirq, steal;
        if (sscanf(line, "cpu%d %lu %lu %lu %lu %lu %lu %lu %lu", &number, &user, &nice, &system, &idle, &wait, &irq, &softirq,
                   &steal) == 9 && number == core)
            busy = (double)(user + nice + system + irq + softirq + steal) / (double)sysconf(_SC_CLK_TCK);
    }
    if (file)
        fclose(file);
    return busy;
}
