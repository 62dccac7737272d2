/* The numbers of names, categories and tracks: looked up in the mappings of the reader, and remembered by their text. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "event.h"
#include "statement.h"

#define NAME_SLOTS 4096
#define FEW_SLOTS 256
#define TRACK_KEY_BYTES 112
#define MAPPINGS 6

typedef struct {
    PyObject *text; /* owned */
    const char *data;
    Py_ssize_t length;
    int32_t number, route;
} Known;

typedef struct {
    int32_t length, number;
    uint8_t key[TRACK_KEY_BYTES];
} Track;

typedef struct {
    PyObject_HEAD
    /* Mappings that number what they are asked for, and what names the routes of names. */
    PyObject *strings, *tracks, *categories, *statements, *shapes, *operators;
    Known names[NAME_SLOTS], kinds[FEW_SLOTS], texts[NAME_SLOTS], stated[FEW_SLOTS];
    Track lanes[FEW_SLOTS];
    Column written; /* a statement */
} Scanner;

static uint64_t hash(Text at, Text end) {
    uint64_t value = (uint64_t)(end - at) * UINT64_C(0x9E3779B97F4A7C15), part;
    for (; end - at >= 8; at += 8) {
        memcpy(&part, at, 8);
        value = (value ^ part) * UINT64_C(0xD6E8FEB86659FD93);
        value ^= value >> 32;
    }
    part = 0;
    memcpy(&part, at, (size_t)(end - at));
    value = (value ^ part) * UINT64_C(0xD6E8FEB86659FD93);
    return value ^ (value >> 32);
}

/* mapping[key] as a number; -1 and an exception where that fails. */
static int64_t look_up(PyObject *mapping, PyObject *key) {
    PyObject *found = PyObject_GetItem(mapping, key);
    if (!found) return -1;
    int64_t number = PyLong_AsLongLong(found);
    Py_DECREF(found);
    return number;
}

/* The entry of a text, made where it is new. NULL: an exception is set. */
static Known *numbered(Known *slots, size_t count, PyObject *mapping, PyObject *router, Field field) {
    Known *slot = &slots[hash(field.at, field.end) % count];
    Py_ssize_t length = field.end - field.at;
    if (slot->text && slot->length == length && !memcmp(slot->data, field.at, (size_t)length)) return slot;
    PyObject *text = PyUnicode_FromStringAndSize((const char *)field.at, length);
    if (!text) return NULL;
    int64_t number = look_up(mapping, text), route = 0;
    if (number >= 0 && router) {
        PyObject *answer = PyObject_CallMethod(router, "route", "L", (long long)number);
        route = answer ? PyLong_AsLongLong(answer) : -1;
        Py_XDECREF(answer);
    }
    const char *data = number < 0 || route < 0 ? NULL : PyUnicode_AsUTF8AndSize(text, &length);
    if (!data) {
        Py_DECREF(text);
        return NULL;
    }
    Py_XDECREF(slot->text);
    *slot = (Known){text, data, length, (int32_t)number, (int32_t)route};
    return slot;
}

static PyObject *identifier(Field field) {
    if (*field.at == '"') return PyUnicode_FromStringAndSize((const char *)field.at + 1, field.end - field.at - 2);
    int64_t number = 0;
    read_integer(field.at, field.end, &number);
    return PyLong_FromLongLong(number);
}

/* The number of (pid, tid); -1: an exception is set. */
static int64_t track(Scanner *self, Field pid, Field tid) {
    size_t first = (size_t)(pid.end - pid.at), second = (size_t)(tid.end - tid.at), length = first + second + 1;
    Track *slot = NULL;
    if (length <= TRACK_KEY_BYTES) {
        uint8_t key[TRACK_KEY_BYTES];
        memcpy(key, pid.at, first);
        key[first] = ',';
        memcpy(key + first + 1, tid.at, second);
        slot = &self->lanes[hash(key, key + length) % FEW_SLOTS];
        if (slot->length == (int32_t)length && !memcmp(slot->key, key, length)) return slot->number;
        memcpy(slot->key, key, length);
        slot->length = 0; /* until its number is known */
    }
    PyObject *process = identifier(pid), *thread = identifier(tid);
    PyObject *pair = process && thread ? PyTuple_Pack(2, process, thread) : NULL;
    int64_t number = pair ? look_up(self->tracks, pair) : -1;
    Py_XDECREF(process);
    Py_XDECREF(thread);
    Py_XDECREF(pair);
    if (slot && number >= 0) {
        slot->number = (int32_t)number;
        slot->length = (int32_t)length;
    }
    return number;
}
