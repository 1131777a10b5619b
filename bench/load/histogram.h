/* A log-linear (HDR) histogram of durations: every power of two is cut into 128 equal parts, so a recorded value is
 * known to better than 0.8 %, from 1 ns to 2^47 ns (39 hours), in fixed memory. The maximum is kept exactly. */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>

#define HISTOGRAM_SUB_BITS 7
#define HISTOGRAM_BUCKETS ((47 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
    uint64_t count, max_ns, min_ns;
    double sum_ns;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_clear(struct histogram *h);
void histogram_record(struct histogram *h, uint64_t ns);

/* Smallest recorded value (upper edge of its bucket) that at least `percentile` % of the values do not exceed. */
uint64_t histogram_percentile(const struct histogram *h, double percentile);

/* Write {"count":…,"mean":…,"p50":…,…,"max":…,"distribution":[[percentile,µs],…]}, in microseconds: from the least value to
 * the greatest, five steps to each half of what is left above. */
void histogram_print(const struct histogram *h, FILE *out);

/* Write text as a JSON string. */
void json_print(const char *text, FILE *out);

#endif
