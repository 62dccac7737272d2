/* What a collective states: all of it as one text that is equal for equal calls, and its number, which alone differs. */
#pragma once
#include "column.h"
#include "event.h"

/* The keys of ddprof.readers.columns.arguments._STATED, by their names in JSON. */
static const char *const STATED[] = {
    "Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size", "Rank", "Src Rank", "Dst Rank",
    "Process Group Name", "Process Group Description", "Process Group Ranks", "Global rank start",
    "Global rank stride"};
enum { STATEMENTS = sizeof STATED / sizeof *STATED };
#define BETWEEN '\x01' /* stands nowhere in JSON */

typedef struct {
    Field values[STATEMENTS], seq;
} Statement;

static Text read_stated_member(Text key, Text end, Text at, void *into) {
    Statement *statement = into;
    if (IS(key, end, "Seq")) return read_any(at, &statement->seq, 2);
    size_t length = (size_t)(end - key);
    for (int i = 0; i < STATEMENTS; i++)
        if (strlen(STATED[i]) == length && !memcmp(STATED[i], key, length))
            return read_any(at, &statement->values[i], 2);
    return skip_value(at, 2);
}

/* The text of a statement, put into `written`, and its number (NO_NUMBER: none). 0: out of memory. -1: the number is odd. */
static int read_statement(Text args, Column *written, int64_t *seq) {
    Statement statement;
    memset(&statement, 0, sizeof statement);
    read_object(args, read_stated_member, &statement); /* it was read before */
    written->used = 0;
    for (int i = 0; i < STATEMENTS; i++) {
        Field value = statement.values[i];
        size_t length = value.at ? (size_t)(value.end - value.at) : 0;
        char *to = grow(written, length + 1);
        if (!to) return 0;
        if (length) memcpy(to, value.at, length);
        to[length] = BETWEEN;
    }
    *seq = NO_NUMBER;
    return !statement.seq.at || read_integer(statement.seq.at, statement.seq.end, seq) ? 1 : -1;
}
