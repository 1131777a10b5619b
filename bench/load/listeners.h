/* Who listens at which address, for the sink: lists of peers by address (template.h has the form of addresses). */
#ifndef BENCH_LISTENERS_H
#define BENCH_LISTENERS_H

#include <stdint.h>

struct listeners {
    void **all;
    uint32_t count, room;
};

/* Those at an address; never NULL. */
struct listeners *listeners_at(uint32_t address);
void listeners_add(uint32_t address, void *peer);
void listeners_remove(uint32_t address, const void *peer);

/* Find the next address in text; returns the byte after it, or NULL when there is none. */
const char *address_find(const char *text, const char *end, uint32_t *address);

#endif
