/* Arrays that grow: what a block adds to one column. */
#pragma once
#include <stdint.h>
#include <stdlib.h>

typedef struct {
    char *data;
    size_t used, size;
} Column;

static void *grow(Column *column, size_t bytes) {
    if (column->used + bytes > column->size) {
        size_t size = column->size ? 2 * column->size : 16384;
        while (size < column->used + bytes) size *= 2;
        char *data = realloc(column->data, size);
        if (!data) return NULL;
        column->data = data;
        column->size = size;
    }
    column->used += bytes;
    return column->data + column->used - bytes;
}

static int push32(Column *column, int64_t value) {
    int32_t *at = grow(column, sizeof *at);
    if (at) *at = (int32_t)value;
    return at != NULL;
}

static int push64(Column *column, int64_t value) {
    int64_t *at = grow(column, sizeof *at);
    if (at) *at = value;
    return at != NULL;
}
