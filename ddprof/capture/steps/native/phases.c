/* The phase timers of ddprof/capture/steps/tracker.py for the step path of a job: see there for what a step is.

   They are called eight times a step, each time with caches and TLB that the training has just filled with its own
   data. A Python function then costs 5 to 8 us, nearly all of it misses; here all that a common call reads lies in one
   struct. Callbacks keep their own errors to themselves: what still arrives here (KeyboardInterrupt, SystemExit) is the
   job's, and goes on to it. */
#define _GNU_SOURCE /* RUSAGE_THREAD */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#ifdef __linux__
#include <sys/resource.h>
#endif
#include <sys/stat.h>
#include <time.h>

#include "step_log.h"

enum { DATA, FORWARD, BACKWARD, OPTIMIZER, COLLECTIVE, PHASES };
#define GONE Py_None /* in place of the id of an optimizer that has stepped and is no more */

typedef struct {
    PyObject_HEAD
    char enabled, timed, listening, profiled, disturbed;
    char fetched, forwarded, worked, has_thread;
    unsigned long thread;
    long long index, calm_until, start_ns, last_end_ns, spent_hooks_ns;
    Py_ssize_t stepped_count; /* of `stepped`, so that most calls need not look */
    int depth[PHASES];
    int64_t began_ns[PHASES], spent_ns[PHASES];
    int64_t waited_before_ns, waited_at_ns[COLLECTIVE], waited_in_ns[COLLECTIVE];
    int64_t waited_ns; /* when it was read last, at so many switches of the thread */
    long switches;
    int scheduled; /* one more than the descriptor of SCHEDULED; 0 for none */
    struct stat opened; /* what was opened there: the script may have closed it, and opened a file of its own */
    StepLog log;
    PyObject *stepped, *known; /* sets of optimizers' ids: in this step, in the one before it */
    PyObject *on_boundary, *open_range, *close_range, *is_main_thread, *make_step;
} StepTracker;

static int64_t wall_ns(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ------------------------------------------------------------------------------------------- waiting for a CPU */

#define SCHEDULED "/proc/thread-self/schedstat" /* Linux: ns on a CPU, ns ready to run without one, turns */

static void forget_thread(StepTracker *self) {
    struct stat now;
    if (self->scheduled && !fstat(self->scheduled - 1, &now) && now.st_dev == self->opened.st_dev &&
        now.st_ino == self->opened.st_ino)
        close(self->scheduled - 1);
    self->scheduled = self->has_thread = 0;
}

static void own_thread(StepTracker *self, unsigned long thread) {
    forget_thread(self);
    self->thread = thread;
    self->has_thread = 1;
    self->scheduled = open(SCHEDULED, O_RDONLY | O_CLOEXEC) + 1;
    self->switches = -1;
    char first = '0'; /* of a kernel that does not count: it shows zeros */
    if (self->scheduled && (fstat(self->scheduled - 1, &self->opened) || pread(self->scheduled - 1, &first, 1, 0) < 1 ||
                            first == '0')) {
        close(self->scheduled - 1);
        self->scheduled = 0;
    }
}

/* A thread that was not switched has not waited: that is asked first, for a third of the time. */
static int64_t waited_ns(StepTracker *self) {
    if (!self->scheduled) return 0;
#ifdef RUSAGE_THREAD
    struct rusage used;
    if (!getrusage(RUSAGE_THREAD, &used)) {
        if (self->switches == used.ru_nvcsw + used.ru_nivcsw) return self->waited_ns;
        self->switches = used.ru_nvcsw + used.ru_nivcsw;
    }
#endif
    char text[80];
    ssize_t size = pread(self->scheduled - 1, text, sizeof text - 1, 0);
    text[size > 0 ? size : 0] = 0;
    const char *second = strchr(text, ' ');
    return self->waited_ns = second ? strtoll(second, NULL, 10) : 0;
}

/* ------------------------------------------------------------------------------------------- steps */

static void close_step(StepTracker *self, int64_t end_ns, int disturbed) {
    int64_t before_ns = self->waited_before_ns;
    self->waited_before_ns = waited_ns(self);
    int64_t waited = self->waited_before_ns - before_ns;
    LoggedStep step = {{self->index, self->start_ns, end_ns, 0, 0, 0, 0, 0, waited, 0, 0, 0, 0, self->profiled}, disturbed};
    memcpy(step.fields + 3, self->spent_ns, sizeof self->spent_ns);
    memcpy(step.fields + 9, self->waited_in_ns, sizeof self->waited_in_ns);
    for (int at = 8; at < 13; at++) {
        if (step.fields[at] < 0) step.fields[at] = 0;
        if (!self->scheduled) step.fields[at] = -1;
    }
    log_book(&self->log, &step);
}

static void forget_stepped(StepTracker *self) {
    PySet_Clear(self->stepped);
    self->stepped_count = 0;
}

/* Between two steps. Puts the new one's start into `now_ns`, later where the callback did heavy work. -1: an error. */
static int boundary(StepTracker *self, int64_t *now_ns) {
    close_step(self, *now_ns, self->disturbed);
    self->index++;
    PyObject *before = self->known;
    self->known = self->stepped;
    PySet_Discard(self->known, GONE);
    self->stepped = before;
    forget_stepped(self);
    self->start_ns = *now_ns;
    memset(self->spent_ns, 0, sizeof self->spent_ns);
    memset(self->waited_in_ns, 0, sizeof self->waited_in_ns);
    self->fetched = 0;
    if (self->index < self->calm_until || !self->on_boundary) return 0;
    PyObject *index = PyLong_FromLongLong(self->index);
    PyObject *heavy = index ? PyObject_CallFunctionObjArgs(self->on_boundary, index, NULL) : NULL;
    Py_XDECREF(index);
    if (heavy == Py_True) {
        self->start_ns = *now_ns = wall_ns();
        self->waited_before_ns = waited_ns(self);
    }
    Py_XDECREF(heavy);
    return heavy ? 0 : -1;
}

static int all_have_stepped(StepTracker *self) {
    int all = PyObject_RichCompareBool(self->stepped, self->known, Py_GE);
    if (all < 0) PyErr_Clear();
    return all != 0;
}

/* Backward and optimizer name the training thread; before the first of them the main thread is taken for it. 1: it is
   this thread, 0: it is not, -1: an error. */
static int adopt(StepTracker *self, unsigned long thread, int phase) {
    int trains = phase == BACKWARD || phase == OPTIMIZER;
    if (!self->has_thread && phase != COLLECTIVE) {
        if (!trains) {
            PyObject *is_main = PyObject_CallFunctionObjArgs(self->is_main_thread, NULL);
            Py_XDECREF(is_main);
            if (is_main != Py_True) return is_main ? 0 : -1;
        }
    } else if (trains && self->index == 0 && !self->stepped_count) {
        memset(self->depth, 0, sizeof self->depth); /* the main thread only prepared; a worker thread trains */
    } else {
        return 0;
    }
    own_thread(self, thread);
    return 1;
}

/* ------------------------------------------------------------------------------------------- phases */

static const char *const RANGES[PHASES] = {"ddprof::data", "ddprof::forward", "ddprof::backward", "ddprof::optimizer",
                                           "ddprof::collective"};

static PyObject *open_range(StepTracker *self, int phase, PyObject *name) {
    PyObject *text = name ? Py_NewRef(name) : PyUnicode_FromString(RANGES[phase]);
    PyObject *range = text ? PyObject_CallFunctionObjArgs(self->open_range, text, NULL) : NULL;
    Py_XDECREF(text);
    return range;
}

static PyObject *enter(StepTracker *self, int phase, PyObject *name) {
    unsigned long thread = PyThread_get_thread_ident();
    if (!self->has_thread || thread != self->thread) {
        int adopted = adopt(self, thread, phase);
        if (adopted <= 0) return adopted ? NULL : Py_NewRef(Py_False);
    }
    if (self->depth[phase]++) return Py_NewRef(Py_False);
    if (phase == FORWARD && self->depth[BACKWARD]) return Py_NewRef(Py_False); /* recomputation is part of backward */
    int64_t now_ns = wall_ns();
    if (!self->depth[OPTIMIZER]) { /* no step begins inside a closure (LBFGS, Lightning) */
        if (!self->start_ns) {
            self->start_ns = now_ns;
            self->waited_before_ns = waited_ns(self);
        }
        if (phase == DATA) {
            if (self->stepped_count && boundary(self, &now_ns)) return NULL;
            self->fetched = 1;
        } else if (phase == FORWARD) {
            if (self->stepped_count && !self->fetched && all_have_stepped(self) && boundary(self, &now_ns)) return NULL;
            self->forwarded = 1;
        }
        if (phase == FORWARD || phase == BACKWARD) self->worked = 1;
    }
    self->began_ns[phase] = now_ns;
    if (phase != COLLECTIVE) self->waited_at_ns[phase] = waited_ns(self); /* of which a step has many */
    if (self->listening) {
        PyObject *range = open_range(self, phase, name);
        if (range != Py_None) return range;
        Py_DECREF(range);
    }
    return Py_NewRef(Py_True);
}

static void leave(StepTracker *self, int phase, int counted) {
    if (!self->has_thread || PyThread_get_thread_ident() != self->thread || !self->depth[phase]) return;
    self->depth[phase]--;
    if (!counted) return;
    int64_t now_ns = wall_ns(), spent_ns = now_ns - self->began_ns[phase];
    self->last_end_ns = now_ns;
    if (spent_ns < 0) spent_ns = 0; /* the wall clock may be set back */
    self->spent_ns[phase] += spent_ns;
    int64_t waited = phase == COLLECTIVE ? 0 : waited_ns(self) - self->waited_at_ns[phase];
    if (waited < 0) waited = 0;
    if (phase != COLLECTIVE) self->waited_in_ns[phase] += waited;
    if (self->depth[OPTIMIZER] && (phase == FORWARD || phase == BACKWARD)) { /* a closure's own are not the optimizer's */
        self->spent_ns[OPTIMIZER] -= spent_ns;
        self->waited_in_ns[OPTIMIZER] -= waited;
    }
}

static int phase_of(PyObject *argument) {
    long phase = PyLong_AsLong(argument);
    if (phase == -1 && PyErr_Occurred()) PyErr_Clear();
    return phase >= 0 && phase < PHASES ? (int)phase : -1;
}

static PyObject *StepTracker_begin(StepTracker *self, PyObject *const *args, Py_ssize_t count) {
    int phase = count > 0 ? phase_of(args[0]) : -1;
    if (!self->enabled || phase < 0) return Py_NewRef(Py_None);
    int64_t entered_ns = self->timed ? wall_ns() : 0;
    PyObject *token = enter(self, phase, count > 1 && args[1] != Py_None ? args[1] : NULL);
    if (entered_ns) self->spent_hooks_ns += wall_ns() - entered_ns;
    return token;
}

static PyObject *StepTracker_end(StepTracker *self, PyObject *const *args, Py_ssize_t count) {
    int phase = count > 1 ? phase_of(args[0]) : -1;
    if (!self->enabled || phase < 0 || args[1] == Py_None) return Py_NewRef(Py_None);
    PyObject *token = args[1], *closed = NULL;
    int64_t entered_ns = self->timed ? wall_ns() : 0;
    int is_range = token != Py_True && token != Py_False;
    if (is_range) closed = PyObject_CallFunctionObjArgs(self->close_range, token, NULL);
    leave(self, phase, token != Py_False);
    if (entered_ns) self->spent_hooks_ns += wall_ns() - entered_ns;
    if (is_range && !closed) return NULL;
    Py_XDECREF(closed);
    return Py_NewRef(Py_None);
}

static PyObject *StepTracker_optimizer_begins(StepTracker *self, PyObject *optimizer_id) {
    if (!self->enabled || !self->has_thread || PyThread_get_thread_ident() != self->thread) return Py_NewRef(Py_None);
    if (!self->stepped_count || self->worked || self->depth[OPTIMIZER]) return Py_NewRef(Py_None);
    int again = PySet_Contains(self->stepped, optimizer_id);
    int64_t now_ns = wall_ns();
    if (again < 0) PyErr_Clear();
    if (again > 0 && boundary(self, &now_ns)) return NULL;
    return Py_NewRef(Py_None);
}

static PyObject *StepTracker_optimizer_stepped(StepTracker *self, PyObject *optimizer_id) {
    if (!self->enabled || !self->has_thread || PyThread_get_thread_ident() != self->thread) return Py_NewRef(Py_None);
    int again = self->stepped_count ? PySet_Contains(self->stepped, optimizer_id) : 0;
    if (again > 0) {
        /* It stepped twice on what was fetched once: batches no longer mark the steps, so the next forward does; where
           no forward is seen either, this is the mark. */
        PyObject *known = PySet_New(self->stepped), *before = self->known;
        if (!known) return NULL;
        PySet_Discard(known, GONE);
        self->known = known;
        Py_DECREF(before);
        self->fetched = 0;
        int64_t now_ns = wall_ns();
        if (!self->forwarded && boundary(self, &now_ns)) return NULL;
    }
    if (again < 0 || PySet_Add(self->stepped, optimizer_id) < 0) PyErr_Clear();
    self->stepped_count = PySet_Size(self->stepped);
    self->forwarded = self->worked = 0;
    return Py_NewRef(Py_None);
}

static PyObject *StepTracker_optimizer_died(StepTracker *self, PyObject *optimizer_id) {
    if (PySet_Discard(self->known, optimizer_id) < 0) PyErr_Clear();
    if (PySet_Discard(self->stepped, optimizer_id) > 0 && PySet_Add(self->stepped, GONE) < 0) PyErr_Clear();
    return Py_NewRef(Py_None);
}

static PyObject *StepTracker_mark_step(StepTracker *self, PyObject *nothing) {
    unsigned long thread = PyThread_get_thread_ident();
    if (self->enabled && !self->has_thread) own_thread(self, thread);
    if (!self->enabled || thread != self->thread) return Py_NewRef(Py_None);
    int64_t now_ns = wall_ns();
    if (self->start_ns) {
        forget_stepped(self);
        if (boundary(self, &now_ns)) return NULL;
    } else {
        self->start_ns = now_ns;
        self->waited_before_ns = waited_ns(self);
    }
    return Py_NewRef(Py_None);
}

static PyObject *StepTracker_finish(StepTracker *self, PyObject *nothing) {
    if (!self->stepped_count || self->last_end_ns <= self->start_ns) return Py_NewRef(Py_False);
    close_step(self, self->last_end_ns, 1);
    forget_stepped(self);
    return Py_NewRef(Py_True);
}

static PyObject *StepTracker_restart(StepTracker *self, PyObject *nothing) {
    self->start_ns = self->last_end_ns = self->index = self->calm_until = self->spent_hooks_ns = 0;
    memset(self->spent_ns, 0, sizeof self->spent_ns);
    memset(self->depth, 0, sizeof self->depth);
    forget_stepped(self);
    PySet_Clear(self->known);
    self->fetched = self->forwarded = self->worked = 0;
    memset(self->waited_in_ns, 0, sizeof self->waited_in_ns);
    forget_thread(self);
    self->profiled = self->disturbed = self->listening = self->timed = 0;
    self->log.booked = 0;
    log_unmap(&self->log);
    return Py_NewRef(Py_None);
}

/* `place` of a ring.StepRing: its file's name, where records begin, how many fit. None: write to no file any more. */
static PyObject *StepTracker_write_to(StepTracker *self, PyObject *ring) {
    log_unmap(&self->log);
    if (ring == Py_None) return Py_NewRef(Py_None);
    PyObject *place = PyObject_GetAttrString(ring, "place");
    char *path;
    Py_ssize_t at;
    long long capacity;
    if (!place) return NULL;
    int failed = !PyArg_ParseTuple(place, "ynL", &path, &at, &capacity);
    if (!failed && (at < 0 || capacity <= 0)) {
        PyErr_SetString(PyExc_ValueError, "a ring has a place and a capacity");
        failed = 1;
    } else if (!failed && log_map(&self->log, path, (size_t)at, capacity)) {
        PyErr_SetFromErrno(PyExc_OSError);
        failed = 1;
    }
    Py_DECREF(place);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *logged_step(StepTracker *self, const LoggedStep *step) {
    const int64_t *f = step->fields;
    PyObject *made = PyObject_CallFunction(self->make_step, "LLLLLLLLLLLLLO", f[0], f[1], f[2], f[3], f[4], f[5], f[6],
                                           f[7], f[8], f[9], f[10], f[11], f[12], f[13] ? Py_True : Py_False);
    return made ? Py_BuildValue("(NO)", made, step->disturbed ? Py_True : Py_False) : NULL;
}

static PyObject *StepTracker_logged(StepTracker *self, PyObject *nothing) {
    PyObject *steps = PyList_New(0);
    for (int64_t n = 0; steps && n < log_kept(&self->log); n++) {
        const LoggedStep step = *log_at(&self->log, n); /* a copy: making it may let the training thread go on */
        PyObject *made = logged_step(self, &step);
        if (!made || PyList_Append(steps, made)) Py_CLEAR(steps);
        Py_XDECREF(made);
    }
    return steps;
}

static PyObject *StepTracker_booked(StepTracker *self, void *nothing) { return PyLong_FromLongLong(self->log.booked); }

/* ------------------------------------------------------------------------------------------- the type */

static int StepTracker_init(StepTracker *self, PyObject *args, PyObject *kwargs) {
    PyObject *on_boundary, *open, *close, *is_main, *make;
    static char *names[] = {"on_boundary", "open_range", "close_range", "is_main_thread", "make_step", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOO", names, &on_boundary, &open, &close, &is_main, &make)) return -1;
    if (self->stepped) {
        PyErr_SetString(PyExc_TypeError, "a tracker is made once");
        return -1;
    }
    if (log_init(&self->log)) {
        PyErr_NoMemory();
        return -1;
    }
    self->on_boundary = Py_NewRef(on_boundary);
    self->open_range = Py_NewRef(open);
    self->close_range = Py_NewRef(close);
    self->is_main_thread = Py_NewRef(is_main);
    self->make_step = Py_NewRef(make);
    self->known = PySet_New(NULL);
    self->stepped = PySet_New(NULL);
    self->enabled = 1;
    return self->known && self->stepped ? 0 : -1;
}

static int StepTracker_traverse(StepTracker *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->on_boundary);
    Py_VISIT(self->open_range);
    Py_VISIT(self->close_range);
    Py_VISIT(self->is_main_thread);
    Py_VISIT(self->make_step);
    return 0;
}

static int StepTracker_clear(StepTracker *self) {
    self->enabled = 0; /* nothing is called any more */
    Py_CLEAR(self->on_boundary);
    Py_CLEAR(self->open_range);
    Py_CLEAR(self->close_range);
    Py_CLEAR(self->is_main_thread);
    Py_CLEAR(self->make_step);
    return 0;
}

static void StepTracker_dealloc(StepTracker *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    StepTracker_clear(self);
    Py_CLEAR(self->stepped);
    Py_CLEAR(self->known);
    forget_thread(self);
    log_free(&self->log);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"enabled", T_BOOL, offsetof(StepTracker, enabled), 0, NULL},
    {"timed", T_BOOL, offsetof(StepTracker, timed), 0, NULL},
    {"listening", T_BOOL, offsetof(StepTracker, listening), 0, NULL},
    {"profiled", T_BOOL, offsetof(StepTracker, profiled), 0, NULL},
    {"disturbed", T_BOOL, offsetof(StepTracker, disturbed), 0, NULL},
    {"index", T_LONGLONG, offsetof(StepTracker, index), READONLY, NULL},
    {"last_end_ns", T_LONGLONG, offsetof(StepTracker, last_end_ns), READONLY, NULL},
    {"calm_until", T_LONGLONG, offsetof(StepTracker, calm_until), 0, NULL},
    {"spent_ns", T_LONGLONG, offsetof(StepTracker, spent_hooks_ns), 0, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyObject *StepTracker_thread(StepTracker *self, void *nothing) {
    return PyLong_FromUnsignedLong(self->has_thread ? self->thread : 0);
}

static PyObject *StepTracker_phase(StepTracker *self, void *nothing) {
    static const int innermost_first[PHASES] = {COLLECTIVE, DATA, BACKWARD, FORWARD, OPTIMIZER};
    int at = 0;
    while (at < PHASES && !self->depth[innermost_first[at]]) at++;
    return PyLong_FromLong(at < PHASES ? innermost_first[at] : PHASES);
}

static PyGetSetDef computed[] = {{"booked", (getter)StepTracker_booked, NULL, NULL, NULL},
                                 {"thread", (getter)StepTracker_thread, NULL, NULL, NULL},
                                 {"phase", (getter)StepTracker_phase, NULL, NULL, NULL},
                                 {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef methods[] = {
    {"begin", (PyCFunction)(void (*)(void))StepTracker_begin, METH_FASTCALL, NULL},
    {"end", (PyCFunction)(void (*)(void))StepTracker_end, METH_FASTCALL, NULL},
    {"optimizer_begins", (PyCFunction)StepTracker_optimizer_begins, METH_O, NULL},
    {"optimizer_stepped", (PyCFunction)StepTracker_optimizer_stepped, METH_O, NULL},
    {"optimizer_died", (PyCFunction)StepTracker_optimizer_died, METH_O, NULL},
    {"mark_step", (PyCFunction)StepTracker_mark_step, METH_NOARGS, NULL},
    {"finish", (PyCFunction)StepTracker_finish, METH_NOARGS, NULL},
    {"restart", (PyCFunction)StepTracker_restart, METH_NOARGS, NULL},
    {"write_to", (PyCFunction)StepTracker_write_to, METH_O, NULL},
    {"logged", (PyCFunction)StepTracker_logged, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_init, StepTracker_init},
                              {Py_tp_dealloc, StepTracker_dealloc},
                              {Py_tp_traverse, StepTracker_traverse},
                              {Py_tp_clear, StepTracker_clear},
                              {Py_tp_members, members},
                              {Py_tp_getset, computed},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, "See ddprof/capture/steps/tracker.py."},
                              {0, NULL}};

static PyType_Spec spec = {"ddprof.capture.steps._phases.StepTracker", sizeof(StepTracker), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

/* ------------------------------------------------------------------------------------------- callbacks

   What the collector calls may raise nothing: the interpreter prints and drops it. A signal that came while it collected
   is handled in the first Python code that runs after, which is our callback, and its handler may end the script. What it
   raised is kept until the collection ends: raised earlier, in a finalizer or in another's callback, it would be dropped
   there. */

enum { FUNCTION, OWNER, RAISED };

static int raise_again(void *kept) {
    PyErr_SetObject((PyObject *)Py_TYPE(kept), kept);
    Py_DECREF(kept);
    return -1;
}

static PyObject *taken(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback) PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

static PyObject *hand_on(PyObject *held, PyObject *args) {
    PyObject *answer = PyObject_CallObject(PyList_GetItem(held, FUNCTION), args);
    if (PyLong_AsUnsignedLong(PyList_GetItem(held, OWNER)) != PyThread_get_thread_ident()) return answer;
    if (!answer) PyList_SetItem(held, RAISED, taken());
    Py_XDECREF(answer);
    PyObject *kept = PyList_GetItem(held, RAISED), *phase = PyTuple_Size(args) ? PyTuple_GetItem(args, 0) : NULL;
    if (kept != Py_None && phase && PyUnicode_Check(phase) && !PyUnicode_CompareWithASCIIString(phase, "stop")) {
        Py_INCREF(kept);
        PyList_SetItem(held, RAISED, Py_NewRef(Py_None));
        if (Py_AddPendingCall(raise_again, kept)) { /* there is no room */
            raise_again(kept);
            return NULL;
        }
    }
    return Py_NewRef(Py_None);
}

static PyMethodDef handing_on = {"handing_on", hand_on, METH_VARARGS, NULL};

static PyObject *outside(PyObject *module, PyObject *function) {
    PyObject *held = Py_BuildValue("[OkO]", function, PyThread_get_thread_ident(), Py_None);
    PyObject *callback = held ? PyCFunction_New(&handing_on, held) : NULL;
    Py_XDECREF(held);
    return callback;
}

static PyMethodDef functions[] = {{"outside", outside, METH_O, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_phases",
                                        .m_doc = "Phase timers of the training thread.", .m_size = -1,
                                        .m_methods = functions};

PyMODINIT_FUNC PyInit__phases(void) {
    PyObject *module = PyModule_Create(&definition), *type = module ? PyType_FromSpec(&spec) : NULL;
    if (!type || PyModule_AddObject(module, "StepTracker", type)) {
        Py_XDECREF(type);
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
