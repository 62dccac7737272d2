/* The quick half of the Kineto reader: the ordinary events of a block of JSON text, straight into columns.
 *
 * Nearly all events of a trace are spans with plain numbers. Making Python objects of each costs three times what
 * reading its text does. This scanner validates the whole block, fills columns from the ordinary spans, counts the
 * events of categories that nobody uses, and hands back the places of all others: `trace_event` decodes those with
 * msgspec. It gives up on the block (None) where the text is not plain ASCII JSON of the expected types, so whatever is odd or
 * damaged has one reader. It is optional: without a compiler the package installs without it, and msgspec reads everything.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "column.h"
#include "numbering.h"

/* What is done with the events of a category: ddprof.readers.columns.categories.Route. */
enum { ROUTE_KEEP, ROUTE_DROP, ROUTE_PYTHON, ROUTE_REST, ROUTE_OPERATOR };
/* What is used of an operator's arguments: ddprof.readers.columns.categories.Used. */
enum { USED_NOTHING, USED_SHAPES, USED_ALL };
#define MIN_FRAME_NS 100000 /* ddprof.readers.columns.categories.MIN_FRAME_NS */

/* ------------------------------------------------------------------------------------------- a block */

enum {
    CATEGORY, NAME, TRACK, TS, DUR, CORRELATION, EXTERNAL, SERIAL, BEGIN, END,
    COLLECTIVES, STATED_AS, SEQ, SHAPED, DIMS, TYPES, CALLS, REST, COUNTS, COLUMNS
};

typedef enum { DONE, GIVE_UP, RAISED } Outcome;

static int keep(Column *columns, const Event *event, Text block, Text at, Text end, int64_t numbers[3], int64_t ns[2]) {
    int64_t external = event->external == NO_NUMBER ? event->external_old : event->external;
    int done = 1;
    done &= push32(&columns[CATEGORY], numbers[0]) & push32(&columns[NAME], numbers[1]);
    done &= push32(&columns[TRACK], numbers[2]) & push64(&columns[TS], ns[0]) & push64(&columns[DUR], ns[1]);
    done &= push64(&columns[CORRELATION], event->correlation) & push64(&columns[EXTERNAL], external);
    done &= push64(&columns[SERIAL], event->serial);
    return done & push32(&columns[BEGIN], at - block) & push32(&columns[END], end - block);
}

static int count(Column *counts, int32_t number) {
    while (counts->used <= number * sizeof(int64_t))
        if (!push64(counts, 0)) return 0;
    ((int64_t *)counts->data)[number]++;
    return 1;
}

/* The collective of the event that is kept next. */
static Outcome keep_collective(Scanner *self, Column *columns, const Event *event) {
    int64_t seq, number = -1, row = (int64_t)(columns[NAME].used / sizeof(int32_t));
    int found = read_statement(event->args.at, &self->written, &seq);
    if (found > 0) {
        Text text = (Text)self->written.data;
        Field whole = {text, text + self->written.used, 1};
        Known *known = numbered(self->stated, FEW_SLOTS, self->statements, NULL, whole);
        if (!known) return RAISED;
        number = known->number;
    }
    if (!found || !push32(&columns[COLLECTIVES], row) || !push32(&columns[STATED_AS], number) ||
        !push64(&columns[SEQ], seq))
        return PyErr_NoMemory(), RAISED;
    return DONE;
}

/* What is used of the operator that is kept next. */
static Outcome keep_operator(Scanner *self, Column *columns, const Event *event, int32_t used) {
    static const Field nothing = {(Text)"", (Text)"", 1};
    int64_t row = (int64_t)(columns[NAME].used / sizeof(int32_t));
    if (used == USED_ALL && !push32(&columns[CALLS], row)) return PyErr_NoMemory(), RAISED;
    if (!event->dims.at) return DONE;
    Known *dims = numbered(self->texts, NAME_SLOTS, self->shapes, NULL, event->dims);
    if (!dims) return RAISED;
    if (!push32(&columns[SHAPED], row) || !push32(&columns[DIMS], dims->number)) return PyErr_NoMemory(), RAISED;
    Known *types = numbered(self->texts, NAME_SLOTS, self->shapes, NULL, event->types.at ? event->types : nothing);
    if (!types) return RAISED;
    return push32(&columns[TYPES], types->number) ? DONE : (PyErr_NoMemory(), RAISED);
}

/* Sort one event into the columns. */
static Outcome place(Scanner *self, Column *columns, const Event *event, Text block, Text at, Text end) {
    int64_t numbers[3], ns[2];
    Known *category = NULL, *name;
    int route = ROUTE_REST;
    if (event->category.at && event->category.is_plain && event->category.at < event->category.end) {
        category = numbered(self->kinds, FEW_SLOTS, self->categories, self->categories, event->category);
        if (!category) return RAISED;
        route = category->route;
        numbers[0] = category->number;
    }
    Field called = event->name;
    int is_operator = route == ROUTE_OPERATOR;
    if (is_operator) route = ROUTE_KEEP;
    if (route == ROUTE_PYTHON) {
        int is_frame = called.at && called.is_plain && !IS(called.at, called.end, "Python GC");
        if (!is_frame || !read_ns(event->dur, &ns[1])) route = ROUTE_REST;
        else route = ns[1] < MIN_FRAME_NS ? ROUTE_DROP : ROUTE_KEEP;
    }
    if (route == ROUTE_KEEP) {
        int is_span = event->ph.at && event->ph.is_plain && IS(event->ph.at, event->ph.end, "X");
        if (!is_span || event->is_odd || !called.at || !called.is_plain || !event->pid.is_plain ||
            !event->tid.is_plain || !read_ns(event->ts, &ns[0]) || !read_ns(event->dur, &ns[1]))
            route = ROUTE_REST;
    }
    int done;
    if (route == ROUTE_REST) {
        done = push32(&columns[REST], at - block) & push32(&columns[REST], end - block);
        return done ? DONE : (PyErr_NoMemory(), RAISED);
    }
    done = count(&columns[COUNTS], category->number);
    if (route == ROUTE_KEEP) {
        name = numbered(self->names, NAME_SLOTS, self->strings, self->operators, called);
        if (!name) return RAISED;
        numbers[1] = name->number;
        numbers[2] = track(self, event->pid, event->tid);
        if (numbers[2] < 0) return RAISED;
        if (event->is_collective && keep_collective(self, columns, event) != DONE) return RAISED;
        if (is_operator && name->route != USED_NOTHING && keep_operator(self, columns, event, name->route) != DONE)
            return RAISED;
        done &= keep(columns, event, block, at, end, numbers, ns);
    }
    return done ? DONE : (PyErr_NoMemory(), RAISED);
}

static Outcome scan_list(Scanner *self, Column *columns, Text block, Py_ssize_t length) {
    Text at = skip_space(block);
    if (length > INT32_MAX || *at != '[') return GIVE_UP;
    at = skip_space(at + 1);
    if (*at == ']') at++;
    else
        for (;;) {
            Event event;
            if (*at != '{') return GIVE_UP;
            Text end = read_event(at, &event);
            if (!end) return GIVE_UP;
            Outcome outcome = place(self, columns, &event, block, at, end);
            if (outcome != DONE) return outcome;
            at = skip_space(end);
            if (*at == ']') {
                at++;
                break;
            }
            if (*at != ',') return GIVE_UP;
            at = skip_space(at + 1);
        }
    return skip_space(at) == block + length ? DONE : GIVE_UP;
}

static PyObject *Scanner_scan(Scanner *self, PyObject *block) {
    char *text;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(block, &text, &length)) return NULL;
    Column columns[COLUMNS] = {{0}};
    Outcome outcome = scan_list(self, columns, (Text)text, length);
    PyObject *result = NULL;
    if (outcome == GIVE_UP) {
        result = Py_None;
        Py_INCREF(result);
    } else if (outcome == DONE && (result = PyTuple_New(COLUMNS))) {
        for (int i = 0; i < COLUMNS; i++) {
            PyObject *column = PyBytes_FromStringAndSize(columns[i].data, (Py_ssize_t)columns[i].used);
            if (!column || PyTuple_SetItem(result, i, column)) {
                Py_CLEAR(result);
                break;
            }
        }
    }
    for (int i = 0; i < COLUMNS; i++) free(columns[i].data);
    return result;
}

/* ------------------------------------------------------------------------------------------- the module */

static int Scanner_init(Scanner *self, PyObject *args, PyObject *kwargs) {
    PyObject *given[MAPPINGS], **kept[MAPPINGS] = {&self->strings,    &self->tracks, &self->categories,
                                                  &self->statements, &self->shapes, &self->operators};
    static char *names[] = {"strings", "tracks", "categories", "statements", "shapes", "operators", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOO", names, &given[0], &given[1], &given[2], &given[3],
                                     &given[4], &given[5]))
        return -1;
    if (self->strings) {
        PyErr_SetString(PyExc_TypeError, "a Scanner is made once");
        return -1;
    }
    for (int i = 0; i < MAPPINGS; i++) {
        Py_INCREF(given[i]);
        *kept[i] = given[i];
    }
    return 0;
}

static void Scanner_dealloc(Scanner *self) {
    PyTypeObject *type = Py_TYPE(self);
    for (int i = 0; i < NAME_SLOTS; i++) Py_XDECREF(self->names[i].text);
    for (int i = 0; i < FEW_SLOTS; i++) Py_XDECREF(self->kinds[i].text);
    for (int i = 0; i < NAME_SLOTS; i++) Py_XDECREF(self->texts[i].text);
    for (int i = 0; i < FEW_SLOTS; i++) Py_XDECREF(self->stated[i].text);
    free(self->written.data);
    Py_XDECREF(self->strings);
    Py_XDECREF(self->tracks);
    Py_XDECREF(self->categories);
    Py_XDECREF(self->statements);
    Py_XDECREF(self->shapes);
    Py_XDECREF(self->operators);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(scan_doc,
             "scan(text: bytes) -> tuple[bytes, ...] | None\n\n"
             "The columns of a JSON list of events, in the order of `scanned.Block`; None where msgspec must read it.");

static PyMethodDef methods[] = {{"scan", (PyCFunction)Scanner_scan, METH_O, scan_doc}, {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_init, Scanner_init},
                              {Py_tp_dealloc, Scanner_dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, "Scanner(strings, tracks, categories, statements, shapes, operators)"},
                              {0, NULL}};

static PyType_Spec spec = {"ddprof.readers._scan.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, slots};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_scan", .m_doc = "Ordinary trace events to columns.", .m_size = -1};

PyMODINIT_FUNC PyInit__scan(void) {
    fill_tables();
    PyObject *module = PyModule_Create(&definition), *type = module ? PyType_FromSpec(&spec) : NULL;
    if (!type || PyModule_AddIntConstant(module, "COLUMNS", COLUMNS) || PyModule_AddObject(module, "Scanner", type)) {
        Py_XDECREF(type);
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
