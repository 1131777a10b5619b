#include "listeners.h"

#include <stdlib.h>
#include <string.h>

#include "template.h"

static struct listeners by_address[MAX_ADDRESSES];

struct listeners *listeners_at(uint32_t address)
{
    return &by_address[address];
}

void listeners_add(uint32_t address, void *peer)
{
    struct listeners *there = &by_address[address];
    if (there->count == there->room) {
        there->room = there->room ? 2 * there->room : 4;
        there->all = realloc(there->all, there->room * sizeof *there->all);
    }
    there->all[there->count++] = peer;
}

void listeners_remove(uint32_t address, const void *peer)
{
    struct listeners *there = &by_address[address];
    for (uint32_t i = 0; i < there->count; i++)
        if (there->all[i] == peer) {
            there->all[i] = there->all[--there->count];
            return;
        }
}

const char *address_find(const char *text, const char *end, uint32_t *address)
{
    static const size_t prefix = sizeof ADDRESS_PREFIX - 1;
    const char *p = memmem(text, (size_t)(end - text), ADDRESS_PREFIX, prefix);
    if (!p || end - p < (long)prefix + ADDRESS_DIGITS)
        return NULL;
    *address = 0;
    for (int i = 0; i < ADDRESS_DIGITS; i++)
        *address = *address * 10 + (uint32_t)(p[prefix + (size_t)i] - '0') % 10;
    return p + prefix + ADDRESS_DIGITS;
}
