/* The one pass of a replay over the nodes of all ranks: see ddprof/analyzers/replay/nodes.py, which does the same in Python.
 *
 * It is optional: without a compiler the package installs without it. Columns come as bytes, results are written into
 * bytearrays, of which each element is an int64 but for the columns that say otherwise.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { CHAIN, POST, FINISH, ANCHOR, BATCH }; /* ddprof.analyzers.replay.model.Node; what is higher waits for nothing */

typedef struct {
    int64_t *at;
    Py_ssize_t count;
} Times;

/* NEVER, "earlier than any time", may be added to itself. */
static int64_t plus(int64_t a, int64_t b) {
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? INT64_MIN : INT64_MAX) : sum;
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* The instances that a communication takes part in, each raised to `at` where that is later; the latest of them. */
static int meet(PyObject *links, Py_ssize_t node, Times latest, int arrives, int64_t *at) {
    PyObject *met = PyList_GetItem(links, node);
    Py_ssize_t count = met ? PyTuple_Size(met) : -1;
    int64_t until = *at;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t instance = PyLong_AsSsize_t(PyTuple_GetItem(met, i));
        if (instance < 0 || instance >= latest.count) return PyErr_Occurred() ? 0 : (PyErr_BadInternalCall(), 0);
        if (arrives) latest.at[instance] = later(latest.at[instance], *at);
        else until = later(until, latest.at[instance]);
    }
    *at = until;
    return count >= 0;
}

static PyObject *run(PyObject *module, PyObject *args) {
    const uint8_t *kind;
    const int32_t *node, *track, *dep, *section;
    const int64_t *dep_lag, *queue, *take, *beyond;
    Py_ssize_t count, length[8];
    PyObject *links, *results[5];
    Times made[5]; /* in the order of the arguments */
    if (!PyArg_ParseTuple(args, "y#y#y#y#y#y#O!y#y#y#O!O!O!O!O!", &kind, &count, &node, &length[0], &track, &length[1], &dep,
                          &length[2], &dep_lag, &length[4], &section, &length[3], &PyList_Type, &links, &queue, &length[5], &take,
                          &length[6], &beyond, &length[7], &PyByteArray_Type, &results[0], &PyByteArray_Type, &results[1],
                          &PyByteArray_Type, &results[2], &PyByteArray_Type, &results[3], &PyByteArray_Type, &results[4]))
        return NULL;
    for (int i = 0; i < 8; i++)
        if (length[i] != count * (i < 4 ? 4 : 8)) return PyErr_BadInternalCall(), NULL;
    for (int i = 0; i < 5; i++)
        made[i] = (Times){(int64_t *)PyByteArray_AsString(results[i]), PyByteArray_Size(results[i]) / 8};
    Times host = made[0], ends = made[1], starts = made[2], stream = made[3], latest = made[4];
    for (Py_ssize_t i = 0; i < count; i++) {
        int is_host = kind[i] >= ANCHOR;
        if (dep[i] >= ends.count || section[i] < 0 || section[i] + is_host >= host.count ||
            (!is_host && (node[i] < 0 || node[i] >= ends.count || track[i] < 0 || track[i] >= stream.count)))
            return PyErr_BadInternalCall(), NULL;
        int64_t launched = plus(host.at[section[i]], is_host ? take[i] : beyond[i]);
        if (kind[i] == CHAIN || kind[i] == POST) {
            int64_t at = plus(stream.at[track[i]], queue[i]);
            if (dep[i] >= 0) at = later(at, plus(ends.at[dep[i]], dep_lag[i]));
            if (kind[i] == CHAIN) {
                ends.at[node[i]] = at = later(plus(at, take[i]), launched);
                stream.at[track[i]] = later(stream.at[track[i]], at);
            } else {
                starts.at[node[i]] = at = later(at, launched);
                if (!meet(links, i, latest, 1, &at)) return NULL;
            }
        } else if (kind[i] == FINISH) {
            int64_t end = starts.at[node[i]];
            if (!meet(links, i, latest, 0, &end)) return NULL;
            ends.at[node[i]] = end = plus(end, take[i]);
            stream.at[track[i]] = later(stream.at[track[i]], end);
        } else {
            if (kind[i] == ANCHOR) launched = plus(later(launched, dep[i] >= 0 ? ends.at[dep[i]] : launched), beyond[i]);
            else if (kind[i] == BATCH) launched = later(launched, dep_lag[i]);
            host.at[section[i] + 1] = launched;
        }
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"run", run, METH_VARARGS, "Evaluate every node once."}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_nodes", .m_doc = "One pass of a replay.", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__nodes(void) { return PyModule_Create(&definition); }
