/* Whether bytes are surely JSON: a part of what event.check_json_in_python takes, which judges the rest.
 *
 * Strict JSON in UTF-8 (RFC 8259), nested at most MAX_DEPTH deep, in which every number is surely a double. No memory is needed.
 */
#ifndef HEADGATE_NATIVE_JSON_H
#define HEADGATE_NATIVE_JSON_H

#include <stdint.h>
#include <string.h>

enum {
    MAX_DEPTH = 64,          /* event.MAX_DEPTH */
    MAX_NUMBER_DIGITS = 199, /* before the point, and after it: below 10^199 * 10^99, the largest double is 1.8 * 10^308 */
    MAX_EXPONENT_DIGITS = 2,
};

typedef const unsigned char *Cursor;

static Cursor skip_blanks(Cursor at, Cursor end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

/* Return the end of a character of several bytes, or NULL if it is not UTF-8 (RFC 3629: no longer form than needed, no surrogate). */
static Cursor skip_utf8(Cursor at, Cursor end)
{
    unsigned char first = *at++, low = 0x80, high = 0xBF;
    int more;
    if (first >= 0xC2 && first <= 0xDF)
        more = 1;
    else if (first >= 0xE0 && first <= 0xEF) {
        more = 2;
        low = first == 0xE0 ? 0xA0 : low;
        high = first == 0xED ? 0x9F : high;
    } else if (first >= 0xF0 && first <= 0xF4) {
        more = 3;
        low = first == 0xF0 ? 0x90 : low;
        high = first == 0xF4 ? 0x8F : high;
    } else
        return NULL;
    if (end - at < more || *at < low || *at > high)
        return NULL;
    for (at++; --more; at++)
        if (*at < 0x80 || *at > 0xBF)
            return NULL;
    return at;
}

/* Return the code unit of the escape \uXXXX that begins here, or -1. */
static long code_unit(Cursor at, Cursor end)
{
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    long unit = 0;
    for (int i = 2; i < 6; i++) {
        int digit = at[i] >= '0' && at[i] <= '9' ? at[i] - '0' : (at[i] | 0x20) >= 'a' && (at[i] | 0x20) <= 'f' ? (at[i] | 0x20) - 'a' + 10 : -1;
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* Return the end of an escape that begins here, or NULL. Half of a surrogate pair is none. */
static Cursor skip_escape(Cursor at, Cursor end)
{
    if (end - at >= 2 && at[1] && strchr("\"\\/bfnrt", at[1]))
        return at + 2;
    long unit = code_unit(at, end);
    if (unit < 0xD800 || unit > 0xDFFF)
        return unit < 0 ? NULL : at + 6;
    long low = unit < 0xDC00 ? code_unit(at + 6, end) : -1;
    return low >= 0xDC00 && low <= 0xDFFF ? at + 12 : NULL;
}

/* Return whether eight bytes have one that a string cannot simply hold: a quote, a backslash, one below 0x20 or above 0x7F. */
static int has_special(Cursor at)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    uint64_t word;
    memcpy(&word, at, sizeof word);
    uint64_t quotes = word ^ ones * '"', slashes = word ^ ones * '\\';
    /* Each term sets the high bit of a byte that is zero or below the bound, or of one above such a byte, which only costs time. */
    return ((word | (word - ones * 0x20) | (quotes - ones) | (slashes - ones)) & highs) != 0;
}

/* Return the end of a string whose opening quote is behind us, or NULL. */
static Cursor skip_string(Cursor at, Cursor end)
{
    int plain = 0; /* characters in a row: most strings are short, and end before a look at eight bytes pays */
    while (at < end) {
        if (plain == 8 && end - at >= 8) {
            if (has_special(at))
                plain = 0;
            else
                at += 8;
            continue;
        }
        unsigned char byte = *at;
        if (byte == '"')
            return at + 1;
        if (byte == '\\') {
            if (!(at = skip_escape(at, end)))
                return NULL;
        } else if (byte < 0x20)
            return NULL;
        else if (byte < 0x80) {
            at++;
            plain += plain < 8;
        } else if (!(at = skip_utf8(at, end)))
            return NULL;
    }
    return NULL;
}

static Cursor skip_digits(Cursor at, Cursor end, int most)
{
    Cursor from = at;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at > from && at - from <= most ? at : NULL;
}

static Cursor skip_number(Cursor at, Cursor end)
{
    if (*at == '-')
        at++;
    if (at < end && *at == '0')
        at++;
    else if (!(at = skip_digits(at, end, MAX_NUMBER_DIGITS)))
        return NULL;
    if (at < end && *at == '.' && !(at = skip_digits(at + 1, end, MAX_NUMBER_DIGITS)))
        return NULL;
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        at = skip_digits(at, end, MAX_EXPONENT_DIGITS);
    }
    return at;
}

static Cursor skip_word(Cursor at, Cursor end, const char *word)
{
    size_t size = strlen(word);
    return (size_t)(end - at) >= size && !memcmp(at, word, size) ? at + size : NULL;
}

/* Return the end of a value that holds no others, or NULL. */
static Cursor skip_scalar(Cursor at, Cursor end)
{
    switch (*at) {
    case '"':
        return skip_string(at + 1, end);
    case 't':
        return skip_word(at, end, "true");
    case 'f':
        return skip_word(at, end, "false");
    case 'n':
        return skip_word(at, end, "null");
    default:
        return *at == '-' || (*at >= '0' && *at <= '9') ? skip_number(at, end) : NULL;
    }
}

/* Return whether bytes are surely one JSON text in UTF-8, nested at most MAX_DEPTH deep. */
static int is_surely_json(const char *bytes, size_t size)
{
    Cursor at = (Cursor)bytes, end = at + size;
    unsigned char closers[MAX_DEPTH];
    int depth = 0, is_key = 0;
    for (;;) {
        at = skip_blanks(at, end);
        if (at == end)
            return 0;
        if (is_key) {
            if (*at != '"' || !(at = skip_string(at + 1, end)))
                return 0;
            at = skip_blanks(at, end);
            if (at == end || *at++ != ':')
                return 0;
            is_key = 0;
            continue;
        }
        if (*at == '{' || *at == '[') {
            if (depth == MAX_DEPTH)
                return 0;
            closers[depth++] = *at == '{' ? '}' : ']';
            is_key = *at == '{';
            at = skip_blanks(at + 1, end);
            if (at == end || *at != closers[depth - 1])
                continue;
            is_key = 0; /* it is empty: the loop below closes it */
        } else if (!(at = skip_scalar(at, end)))
            return 0;
        /* Behind a value: what it closes, then a comma, or the end. */
        for (;;) {
            at = skip_blanks(at, end);
            if (!depth)
                return at == end;
            if (at == end)
                return 0;
            if (*at != closers[depth - 1])
                break;
            at++;
            depth--;
        }
        if (*at++ != ',')
            return 0;
        is_key = closers[depth - 1] == '}';
    }
}

#endif
