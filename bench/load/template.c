#include "template.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { SEQUENCE_DIGITS = 10, TIME_DIGITS = 20, MAX_TEMPLATE_BYTES = 8 << 20 };

static uint64_t digits(const char *p, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value = value * 10 + (uint64_t)(p[i] - '0');
    return value;
}

const char *marker_find(const char *text, const char *end, uint32_t *sequence, uint64_t *planned_ns)
{
    for (const char *p = text; (p = memchr(p, '~', (size_t)(end - p))); p++) {
        if (end - p < MARKER_BYTES)
            return NULL;
        if (p[SEQUENCE_DIGITS + 1] != ':' || p[MARKER_BYTES - 1] != '~')
            continue;
        *sequence = (uint32_t)digits(p + 1, SEQUENCE_DIGITS);
        *planned_ns = digits(p + SEQUENCE_DIGITS + 2, TIME_DIGITS);
        return p + MARKER_BYTES;
    }
    return NULL;
}

static void find_id(struct template *t)
{
    const char *id = memmem(t->bytes, t->length, EVENT_ID, EVENT_ID_BYTES);
    if (!id)
        return;
    t->id = (size_t)(id - t->bytes);
    if (getrandom(&t->seed, sizeof t->seed, 0) != sizeof t->seed)
        perror("getrandom");
}

static void find_places(struct template *t)
{
    static const size_t prefix = sizeof ADDRESS_PREFIX - 1;
    const char *p = t->bytes, *end = p + t->length;
    while (t->place_count < MAX_ADDRESS_PLACES && (p = memmem(p, (size_t)(end - p), ADDRESS_PREFIX, prefix))) {
        p += prefix;
        if (end - p >= ADDRESS_DIGITS && strspn(p, "0") >= ADDRESS_DIGITS)
            t->places[t->place_count++] = (size_t)(p - t->bytes);
    }
}

bool template_read(struct template *t, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot read template %s: %s\n", path, strerror(errno));
        return false;
    }
    char *bytes = malloc(MAX_TEMPLATE_BYTES);
    size_t length = bytes ? fread(bytes, 1, MAX_TEMPLATE_BYTES, file) : 0;
    fclose(file);
    uint32_t sequence;
    uint64_t planned_ns;
    const char *after = length ? marker_find(bytes, bytes + length, &sequence, &planned_ns) : NULL;
    if (!after) {
        fprintf(stderr, "template %s holds no marker\n", path);
        free(bytes);
        return false;
    }
    free(t->bytes);
    *t = (struct template){.bytes = bytes, .length = length, .marker = (size_t)(after - MARKER_BYTES - bytes)};
    find_places(t);
    find_id(t);
    return true;
}

/* The end of splitmix64: every bit of the input moves every bit of the result. */
static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

static void fill_id(struct template *t, uint32_t sequence)
{
    static const char hexadecimal[] = "0123456789abcdef";
    for (unsigned half = 0; half < 2; half++) {
        uint64_t bits = mixed(t->seed + (2 * (uint64_t)sequence + half) * 0x9e3779b97f4a7c15ULL);
        for (size_t i = 0; i < EVENT_ID_BYTES / 2; i++, bits >>= 4)
            t->bytes[t->id + half * EVENT_ID_BYTES / 2 + i] = hexadecimal[bits & 15];
    }
}

void template_fill(struct template *t, uint32_t sequence, uint64_t planned_ns)
{
    char text[MARKER_BYTES + 1];
    snprintf(text, sizeof text, "~%010u:%020llu~", sequence, (unsigned long long)planned_ns);
    memcpy(t->bytes + t->marker, text, MARKER_BYTES);
    if (t->id)
        fill_id(t, sequence);
}

void template_address(struct template *t, uint32_t address)
{
    char digits_of[ADDRESS_DIGITS];
    for (int i = ADDRESS_DIGITS; i-- > 0; address /= 10)
        digits_of[i] = (char)('0' + address % 10);
    for (unsigned i = 0; i < t->place_count; i++)
        memcpy(t->bytes + t->places[i], digits_of, sizeof digits_of);
}
