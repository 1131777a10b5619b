#include "audience.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "template.h"

struct word {
    uint32_t line, address;
};

struct words {
    struct word *all;
    size_t count, room;
    uint32_t lines;
};

static bool add(struct words *words, uint32_t address)
{
    if (words->count == words->room) {
        words->room = words->room ? 2 * words->room : 1024;
        words->all = realloc(words->all, words->room * sizeof *words->all);
    }
    words->all[words->count++] = (struct word){words->lines, address};
    return words->all != NULL;
}

static bool read_words(struct words *words, FILE *file)
{
    char line[4096];
    while (fgets(line, sizeof line, file)) {
        for (char *p = line, *next;; p = next) {
            while (isspace((unsigned char)*p))
                p++;
            if (!*p)
                break;
            unsigned long address = strtoul(p, &next, 10);
            if (next == p || address >= MAX_ADDRESSES || !add(words, (uint32_t)address))
                return false;
        }
        words->lines++;
    }
    return words->count > 0;
}

/* Two passes: count the listeners of each address, then put each client into its address's part. */
static void arrange(struct audience *audience, const struct words *words, uint32_t clients)
{
    for (size_t i = 0; i < words->count; i++)
        if (words->all[i].address >= audience->count)
            audience->count = words->all[i].address + 1;
    audience->first = calloc(audience->count + 2, sizeof *audience->first);
    for (size_t i = 0; i < words->count; i++)
        for (uint32_t client = words->all[i].line; client < clients; client += words->lines)
            audience->first[words->all[i].address + 2]++;
    for (uint32_t a = 2; a <= audience->count + 1; a++)
        audience->first[a] += audience->first[a - 1];
    audience->listeners = calloc(audience->first[audience->count + 1] + 1, sizeof *audience->listeners);
    for (size_t i = 0; i < words->count; i++)
        for (uint32_t client = words->all[i].line; client < clients; client += words->lines)
            audience->listeners[audience->first[words->all[i].address + 1]++] = client;
}

bool audience_read(struct audience *audience, const char *path, uint32_t clients)
{
    struct words words = {0};
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    bool good = read_words(&words, file);
    fclose(file);
    if (good)
        arrange(audience, &words, clients);
    free(words.all);
    return good;
}

/* Mix the bits as splitmix64 ends, then take the high part of the product: even, and without the pattern of a plain modulo. */
uint32_t audience_address(const struct audience *audience, uint32_t sequence)
{
    uint64_t x = sequence * 0x9e3779b97f4a7c15ULL;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    x ^= x >> 31;
    return (uint32_t)((x >> 32) * audience->count >> 32);
}

void owed_push(struct owed *owed, uint32_t sequence, bool waited_for)
{
    if (owed->count == owed->room) {
        uint32_t room = owed->room ? 2 * owed->room : 4;
        struct owed_item *items = calloc(room, sizeof *items);
        if (!items) {
            perror("owed");
            exit(2);
        }
        for (uint32_t i = 0; i < owed->count; i++)
            items[i] = owed->items[(owed->start + i) % owed->room];
        free(owed->items);
        *owed = (struct owed){items, 0, owed->count, room};
    }
    owed->items[(owed->start + owed->count++) % owed->room] = (struct owed_item){sequence, waited_for};
}

bool owed_holds(const struct owed *owed, uint32_t sequence)
{
    for (uint32_t i = 0; i < owed->count; i++) {
        uint32_t found = owed->items[(owed->start + i) % owed->room].sequence;
        if (found >= sequence)
            return found == sequence;
    }
    return false;
}

struct owed_item owed_pop(struct owed *owed)
{
    struct owed_item item = owed->items[owed->start];
    owed->start = (owed->start + 1) % owed->room;
    owed->count--;
    return item;
}

void owed_free(struct owed *owed)
{
    free(owed->items);
    *owed = (struct owed){0};
}
