/* Time for the bench: one monotonic clock in nanoseconds, and CPU time of a process. */
#ifndef BENCH_CLOCK_H
#define BENCH_CLOCK_H

#include <stdint.h>

#define NS_PER_S 1000000000ULL
#define NS_PER_MS 1000000ULL
#define NS_PER_US 1000ULL

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t now_ns(void);

/* CPU seconds (user + system, all threads, this process). */
double own_cpu_s(void);

/* CPU seconds (user + system, all threads, dead ones included) of another process; -1 when it cannot be read.
 * By the process's own CPU clock, to the nanosecond: a neighbour that needs 20 ms is no ratio in ticks of 10 ms. */
double process_cpu_s(int pid);

/* CPU seconds that a core has worked since boot, for anybody: interrupts and time stolen by the host included; -1 when
 * it cannot be read. */
double core_busy_s(int core);

#endif
