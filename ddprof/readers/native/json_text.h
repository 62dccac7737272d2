/* The grammar of JSON: each function goes past one thing, or answers NULL where that thing is not valid.
 *
 * Every loop stops at a NUL, which ends every bytes object and is valid nowhere in JSON: no read leaves the block.
 */
#pragma once
#include <stdint.h>
#include <string.h>

#define MAX_DEPTH 64

typedef const uint8_t *Text;

static uint8_t ends_text[256];  /* quote, backslash, control characters, and what is no ASCII: that is for msgspec */
static uint8_t is_space[256];

static void fill_tables(void) {
    memset(ends_text, 1, 0x20);
    memset(ends_text + 0x80, 1, 0x80);
    ends_text['"'] = ends_text['\\'] = 1;
    is_space[' '] = is_space['\t'] = is_space['\n'] = is_space['\r'] = 1;
}

static inline Text skip_space(Text at) {
    while (is_space[*at]) at++;
    return at;
}

static inline int is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

static int is_hex(uint8_t byte) { return is_digit(byte) || ((byte | 32) >= 'a' && (byte | 32) <= 'f'); }

/* From behind the opening quote to the closing one; NULL where the text is no string. */
static inline Text skip_text(Text at, int *escaped) {
    for (;;) {
        while (!ends_text[*at]) at++;
        if (*at == '"') return at;
        if (*at != '\\') return NULL;
        *escaped = 1;
        at++;
        if (*at == 'u') {
            for (int i = 1; i <= 4; i++)
                if (!is_hex(at[i])) return NULL; /* stops at the first byte that is none, so at a NUL */
            /* Half a surrogate pair is for msgspec to judge. */
            if ((at[1] | 32) == 'd' && at[2] >= '8') return NULL;
            at += 5;
        } else if (*at && strchr("\"\\/bfnrt", *at)) {
            at++;
        } else {
            return NULL;
        }
    }
}

/* Whether a number of many digits is in range is for msgspec to judge. */
static Text skip_number(Text at) {
    Text first = at, exponent;
    if (*at == '-') at++;
    if (*at == '0')
        at++;
    else if (is_digit(*at))
        while (is_digit(*at)) at++;
    else
        return NULL;
    if (*at == '.') {
        if (!is_digit(*++at)) return NULL;
        while (is_digit(*at)) at++;
    }
    if ((*at | 32) == 'e') {
        at++;
        if (*at == '+' || *at == '-') at++;
        if (!is_digit(*at)) return NULL;
        for (exponent = at; is_digit(*at);) at++;
        if (at - exponent > 2) return NULL;
    }
    return at - first > 100 ? NULL : at;
}

static Text skip_word(Text at) {
    if (!strncmp((const char *)at, "true", 4) || !strncmp((const char *)at, "null", 4)) return at + 4;
    return strncmp((const char *)at, "false", 5) ? NULL : at + 5;
}

/* Past any value; NULL where it is not valid. */
static Text skip_value(Text at, int depth) {
    int escaped = 0;
    if (*at == '"') return (at = skip_text(at + 1, &escaped)) ? at + 1 : NULL;
    if (*at == '-' || is_digit(*at)) return skip_number(at);
    if (*at != '{' && *at != '[') return skip_word(at);
    if (depth >= MAX_DEPTH) return NULL;
    uint8_t is_object = *at == '{', close = is_object ? '}' : ']';
    at = skip_space(at + 1);
    if (*at == close) return at + 1;
    for (;;) {
        if (is_object) {
            if (*at != '"' || !(at = skip_text(at + 1, &escaped))) return NULL;
            at = skip_space(at + 1);
            if (*at != ':') return NULL;
            at = skip_space(at + 1);
        }
        if (!(at = skip_value(at, depth + 1))) return NULL;
        at = skip_space(at);
        if (*at == close) return at + 1;
        if (*at != ',') return NULL;
        at = skip_space(at + 1);
    }
}
