/* One event: where its fields are, and the numbers among them, digit by digit instead of through float64. */
#pragma once
#include "json_text.h"

#define NO_NUMBER INT64_MIN               /* ddprof.tables.NULL */
#define MAX_NS (INT64_C(1) << 62)         /* ddprof.readers.columns.numbers.MAX_NS */

typedef struct {
    Text at, end; /* of a string without its quotes; at == NULL: not given */
    int is_plain; /* a string without escapes, or a number */
} Field;

typedef struct {
    Field ph, category, name, pid, tid, ts, dur;
    int64_t correlation, external, external_old, serial;
    Field args, dims, types; /* as written, quotes and brackets included */
    int is_odd; /* an argument is not an integer: left to msgspec */
    int is_collective;
} Event;

/* A whole number of at most 18 digits. 0: it is something else. */
static int read_integer(Text at, Text end, int64_t *value) {
    int negative = *at == '-';
    Text first = at + negative;
    if (end - first < 1 || end - first > 18) return 0;
    int64_t number = 0;
    for (at = first; at < end; at++) {
        if (!is_digit(*at)) return 0;
        number = 10 * number + (*at - '0');
    }
    *value = negative ? -number : number;
    return 1;
}

/* Microseconds, with at most three decimals that are not zero, to nanoseconds. 0: it is something else. */
static int read_ns(Field field, int64_t *ns) {
    Text at = field.at, first = at;
    if (!at || !is_digit(*at)) return 0;
    int64_t number = 0;
    for (; at < field.end && is_digit(*at) && at - first < 17; at++) number = 10 * number + (*at - '0');
    if (at - first > 16 || number >= MAX_NS / 1000) return 0;
    int64_t fraction = 0;
    if (at < field.end) {
        if (*at++ != '.') return 0;
        for (int i = 0; i < 3; i++) fraction = 10 * fraction + (at < field.end && is_digit(*at) ? *at++ - '0' : 0);
        while (at < field.end && *at == '0') at++;
        if (at < field.end) return 0;
    }
    *ns = 1000 * number + fraction;
    return 1;
}

static Text read_argument(Text at, int64_t *value, int *is_odd) {
    Text end = skip_value(at, 2);
    if (end && !read_integer(at, end, value)) *is_odd = 1;
    return end;
}

/* From the quote of a key to its value, and where the key ends; NULL where it is none, or none that can be compared. */
static inline Text skip_key(Text at, Text *end) {
    int escaped = 0;
    if (*at != '"' || !(*end = skip_text(at + 1, &escaped)) || escaped) return NULL;
    at = skip_space(*end + 1);
    return *at == ':' ? skip_space(at + 1) : NULL;
}

typedef Text ReadMember(Text key, Text end, Text at, void *into); /* from a value to behind it; NULL: not ours */

/* From an opening brace to behind its closing one. Inlined with its reader: a call per member would cost. */
static inline Text read_object(Text at, ReadMember *read_member, void *into) {
    at = skip_space(at + 1);
    if (*at == '}') return at + 1;
    for (;;) {
        Text key = at + 1, end;
        if (!(at = skip_key(at, &end)) || !(at = read_member(key, end, at, into))) return NULL;
        at = skip_space(at);
        if (*at == '}') return at + 1;
        if (*at != ',') return NULL;
        at = skip_space(at + 1);
    }
}

#define IS(key, end, word) ((size_t)((end) - (key)) == sizeof(word) - 1 && !memcmp(key, word, sizeof(word) - 1))

static Text read_any(Text at, Field *field, int depth) {
    field->at = at;
    return field->end = skip_value(at, depth);
}

static inline Text read_argument_member(Text key, Text end, Text at, void *into) {
    Event *event = into;
    if (IS(key, end, "External id")) return read_argument(at, &event->external, &event->is_odd);
    if (IS(key, end, "correlation")) return read_argument(at, &event->correlation, &event->is_odd);
    if (IS(key, end, "external id")) return read_argument(at, &event->external_old, &event->is_odd);
    if (IS(key, end, "Ev Idx")) return read_argument(at, &event->serial, &event->is_odd);
    if (IS(key, end, "Input Dims")) return read_any(at, &event->dims, 2);
    if (IS(key, end, "Input type")) return read_any(at, &event->types, 2);
    if (IS(key, end, "Collective name")) event->is_collective = *at != 'n';
    return skip_value(at, 2);
}

static Text read_arguments(Text at, Event *event) {
    event->correlation = event->external = event->external_old = event->serial = NO_NUMBER;
    event->is_odd = event->is_collective = 0;
    event->args.at = event->dims.at = event->types.at = NULL;
    if (*at == 'n') return skip_word(at);
    event->args.at = at;
    return *at == '{' ? read_object(at, read_argument_member, event) : NULL;
}

static Text read_string(Text at, Field *field) {
    int escaped = 0;
    if (*at != '"') return NULL;
    field->at = at + 1;
    field->end = skip_text(at + 1, &escaped);
    field->is_plain = !escaped;
    return field->end ? field->end + 1 : NULL;
}

/* A process or thread: a number, or a string (whose quotes are kept: "7" is not 7). */
static Text read_identifier(Text at, Field *field) {
    int escaped = 0, is_string = *at == '"';
    Text end = NULL;
    if (is_string) {
        if ((end = skip_text(at + 1, &escaped))) end++;
    } else if (*at == '-' || is_digit(*at)) {
        end = skip_number(at);
    }
    int64_t unused;
    field->at = at;
    field->end = end;
    field->is_plain = end && !escaped && (is_string || read_integer(at, end, &unused));
    return end;
}

static inline Text read_event_member(Text key, Text end, Text at, void *into) {
    Event *event = into;
    if (IS(key, end, "ph")) return read_string(at, &event->ph);
    if (IS(key, end, "cat")) return read_string(at, &event->category);
    if (IS(key, end, "name")) return read_string(at, &event->name);
    if (IS(key, end, "pid")) return read_identifier(at, &event->pid);
    if (IS(key, end, "tid")) return read_identifier(at, &event->tid);
    if (IS(key, end, "ts")) return read_any(at, &event->ts, 1);
    if (IS(key, end, "dur")) return read_any(at, &event->dur, 1);
    if (IS(key, end, "args")) return read_arguments(at, event);
    return skip_value(at, 1);
}

/* From the opening brace of an event to behind its closing one; NULL where msgspec must look at the block. */
static Text read_event(Text at, Event *event) {
    memset(event, 0, sizeof *event);
    event->correlation = event->external = event->external_old = event->serial = NO_NUMBER;
    return read_object(at, read_event_member, event);
}
