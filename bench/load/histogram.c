#include "histogram.h"

#include <string.h>

enum { SUB = 1 << HISTOGRAM_SUB_BITS, STEPS_PER_HALF = 5 };

void histogram_clear(struct histogram *h)
{
    memset(h, 0, sizeof *h);
    h->min_ns = UINT64_MAX;
}

/* Values below 2 × SUB have their own bucket; above, the top SUB_BITS + 1 bits choose it. */
static unsigned bucket_of(uint64_t ns)
{
    unsigned magnitude = 63 - (unsigned)__builtin_clzll(ns | SUB);
    unsigned shift = magnitude - HISTOGRAM_SUB_BITS;
    unsigned index = (shift << HISTOGRAM_SUB_BITS) + (unsigned)(ns >> shift);
    return index < HISTOGRAM_BUCKETS ? index : HISTOGRAM_BUCKETS - 1;
}

static uint64_t upper_edge_ns(unsigned index)
{
    unsigned shift = index >> HISTOGRAM_SUB_BITS;
    if (shift > 0)
        shift--;
    uint64_t top = index - (shift << HISTOGRAM_SUB_BITS);
    return ((top + 1) << shift) - 1;
}

void histogram_record(struct histogram *h, uint64_t ns)
{
    h->buckets[bucket_of(ns)]++;
    h->count++;
    h->sum_ns += (double)ns;
    if (ns > h->max_ns)
        h->max_ns = ns;
    if (ns < h->min_ns)
        h->min_ns = ns;
}

uint64_t histogram_percentile(const struct histogram *h, double percentile)
{
    if (!h->count)
        return 0;
    double wanted = percentile / 100.0 * (double)h->count;
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->buckets[i];
        if (h->buckets[i] && (double)seen >= wanted) {
            uint64_t edge = upper_edge_ns(i);
            return edge < h->max_ns ? edge : h->max_ns;
        }
    }
    return h->max_ns;
}

void histogram_print(const struct histogram *h, FILE *out)
{
    fprintf(out, "{\"count\":%llu,\"mean\":%.1f", (unsigned long long)h->count,
            h->count ? h->sum_ns / (double)h->count / 1e3 : 0.0);
    fprintf(out, ",\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p99_9\":%.1f,\"max\":%.1f,\"distribution\":[",
            (double)histogram_percentile(h, 50) / 1e3, (double)histogram_percentile(h, 90) / 1e3,
            (double)histogram_percentile(h, 99) / 1e3, (double)histogram_percentile(h, 99.9) / 1e3, (double)h->max_ns / 1e3);
    fprintf(out, "[0,%.1f],", h->count ? (double)h->min_ns / 1e3 : 0.0);
    /* Each half of what is left is cut into as many steps, as long as a step holds a value: the tail is as fine as the middle. */
    for (double left = 100; h->count && left / 100 * (double)h->count >= 1; left /= 2)
        for (int step = 1; step <= STEPS_PER_HALF; step++) {
            double percentile = 100 - left + left / 2 * step / STEPS_PER_HALF;
            fprintf(out, "[%.10g,%.1f],", percentile, (double)histogram_percentile(h, percentile) / 1e3);
        }
    fprintf(out, "[100,%.1f]]}", (double)h->max_ns / 1e3);
}

void json_print(const char *text, FILE *out)
{
    putc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p == '"' || *p == '\\' || *p < 0x20 || *p > 0x7e)
            fprintf(out, "\\u%04x", *p);
        else
            putc(*p, out);
    putc('"', out);
}
