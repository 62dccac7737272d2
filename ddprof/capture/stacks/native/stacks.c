/* Samples of the training thread's Python stack that are not bound to where it lets go of the GIL: see
   ddprof/capture/stacks/collector.py.

   A thread of ours (`collect`) holds no GIL while it waits. When a sample is due it leaves a pending call, which the
   interpreter makes in the main thread before the next call, jump or function that it comes to: where C code runs, as soon as
   that returns, with the caller's line still on the stack. Where nothing answers, the thread of ours takes the GIL and looks by
   itself: at once where the thread is inside C code without the GIL, so that a call that never returns is seen too. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "switching.h"
#include "ticker.h"

enum { MAX_FRAMES = 128, MAX_WALK = 4096, MAX_SAMPLES = 4096 };
enum { PATIENCE_NS = 200000, LATE_NS = 5000000 }; /* LATE: the interpreter's switch interval, sys.getswitchinterval() */

typedef struct {
    PyObject_HEAD
    Ticker ticker;
    int asked, queued; /* atomic: a sample is due; the pending call for it has not been made yet */
    int ended, collecting; /* atomic: nothing is asked any more; our thread is inside `collect` */
    int64_t asked_at_ns, covered_until_ns, due_ns; /* monotonic */
    int64_t asked_unix_ns;
    long long period_ns, spent_ns, dropped;
    unsigned long thread; /* whose stack is wanted */
    char is_main;         /* that thread makes the pending calls */
    char paused;          /* no sample is taken */
    char waits;           /* for the GIL, as long as its switch interval */
    PyObject *tracker, *current_frames, *samples, *f_back, *phase, *index;
} StackCollector;

/* ------------------------------------------------------------------------------------------- one stack */

/* (code, line, code, line, ...), innermost first. A function that calls itself stands there once. NULL: none.

   No garbage is collected meanwhile: on Python 3.11 a frame becomes an object when it is asked for, which may collect, which
   may let go of the GIL; the frame of another thread, where that runs on, is gone when the object is tied to it. */
static PyObject *stack_of(StackCollector *self, PyObject *frame) {
    PyObject *parts[2 * MAX_FRAMES], *last = NULL;
    int count = 0, collects = PyGC_Disable();
    Py_XINCREF(frame);
    for (int walked = 0; frame && frame != Py_None && count < 2 * MAX_FRAMES && walked < MAX_WALK; walked++) {
        PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
        if (code != last) {
            PyObject *line = PyLong_FromLong(PyFrame_GetLineNumber((PyFrameObject *)frame));
            if (!line) {
                Py_DECREF(code);
                break;
            }
            parts[count++] = last = Py_NewRef(code);
            parts[count++] = line;
        }
        Py_DECREF(code);
        PyObject *outer = PyObject_GetAttr(frame, self->f_back);
        Py_DECREF(frame);
        frame = outer;
    }
    Py_XDECREF(frame);
    PyObject *stack = count ? PyTuple_New(count) : NULL;
    for (int at = 0; at < count; at++) {
        if (stack) PyTuple_SetItem(stack, at, parts[at]);
        else Py_DECREF(parts[at]);
    }
    if (collects) PyGC_Enable();
    return stack;
}

/* {thread: innermost frame}. No garbage is collected meanwhile either: Python 3.11 makes the frames objects while it holds a lock
   of its own, and where a collection lets go of the GIL there, the next thread that wants that lock waits for ever with the GIL. */
static PyObject *frames_of_threads(StackCollector *self) {
    int collects = PyGC_Disable();
    PyObject *frames = PyObject_CallFunctionObjArgs(self->current_frames, NULL);
    if (collects) PyGC_Enable();
    return frames;
}

/* ((thread, stack), ...) of all threads but the wanted one: one of them may have held the GIL. */
static PyObject *stacks_beside(StackCollector *self, PyObject *frames) {
    PyObject *found = PyList_New(0), *ident, *frame;
    Py_ssize_t at = 0;
    while (found && PyDict_Next(frames, &at, &ident, &frame)) {
        if (PyLong_AsUnsignedLong(ident) == self->thread) continue;
        PyObject *stack = stack_of(self, frame);
        PyObject *entry = stack ? Py_BuildValue("(ON)", ident, stack) : NULL;
        if (entry && PyList_Append(found, entry)) PyErr_Clear();
        Py_XDECREF(entry);
    }
    return found;
}

/* Keep what answers the sample that is due: (unix ns, covers ns, late ns, phase, step, stack, stacks of other threads). */
static void keep(StackCollector *self, PyObject *frame, PyObject *frames) {
    /* The training thread that answers itself loses what that takes on a CPU: a busy machine would have stopped it in its own code as
       well. While our thread answers, with the GIL, it waits for as long as that lasts. */
    clockid_t clock = frames ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    int64_t began_ns = ticker_read(clock), now_ns = ticker_now_ns(), late_ns = now_ns - self->asked_at_ns;
    /* It stands for the time that has passed, not for the one that was planned: of that no more than the longest pause, because
       nobody knows what ran in a longer one. */
    int64_t since_ns = self->asked_at_ns - self->covered_until_ns, pause_ns = ticker_longest_ns(self->period_ns);
    int64_t covers_ns = (since_ns < 0 ? 0 : since_ns < pause_ns ? since_ns : pause_ns) + late_ns;
    __atomic_store_n(&self->covered_until_ns, now_ns, __ATOMIC_SEQ_CST);
    __atomic_store_n(&self->asked, 0, __ATOMIC_SEQ_CST);
    if (PyList_Size(self->samples) >= MAX_SAMPLES) {
        self->dropped++;
        return;
    }
    PyObject *own = late_ns > LATE_NS && !frames ? frames_of_threads(self) : NULL;
    PyObject *all = own ? own : frames, *beside = NULL;
    if (late_ns > LATE_NS && all && PyDict_Check(all)) beside = stacks_beside(self, all);
    PyObject *stack = stack_of(self, frame);
    PyObject *phase = PyObject_GetAttr(self->tracker, self->phase), *step = PyObject_GetAttr(self->tracker, self->index);
    PyObject *sample = NULL;
    if (stack && phase && step)
        sample = Py_BuildValue("(LLLOOOO)", (long long)self->asked_unix_ns, (long long)covers_ns, (long long)late_ns, phase,
                               step, stack, beside ? beside : Py_None);
    if (sample) PyList_Append(self->samples, sample);
    Py_XDECREF(sample);
    Py_XDECREF(stack);
    Py_XDECREF(phase);
    Py_XDECREF(step);
    Py_XDECREF(beside);
    Py_XDECREF(own);
    PyErr_Clear(); /* out of memory: the job has other worries than this sample */
    self->spent_ns += ticker_read(clock) - began_ns;
}

/* The pending call, in the thread that is asked. It is made between two bytecodes, when no exception is set, and raises none. */
static int answer(void *collector) {
    StackCollector *self = collector;
    __atomic_store_n(&self->queued, 0, __ATOMIC_SEQ_CST);
    if (switching.leave && PyThread_get_thread_ident() != self->thread) return 0; /* it is made in any */
    if (!__atomic_load_n(&self->asked, __ATOMIC_SEQ_CST) || __atomic_load_n(&self->ended, __ATOMIC_SEQ_CST)) return 0;
    /* No garbage is collected meanwhile: a traced callback of a collection spins on Python 3.11 from the moment that the next pending
       call is left, which is not made before this one has returned. */
    int collects = PyGC_Disable();
    keep(self, (PyObject *)PyEval_GetFrame(), NULL);
    if (collects) PyGC_Enable();
    if (!switching.set_us) return 0;
    /* Our thread waits for the GIL, and where it has hurried us it gets it now in any case: here it can be told how long that takes,
       which on a busy machine is more than all else. */
    int64_t left_ns = ticker_now_ns();
    PyThreadState *state = PyEval_SaveThread();
    PyEval_RestoreThread(state);
    self->spent_ns += ticker_now_ns() - left_ns;
    return 0;
}

/* From our thread, with the GIL. */
static void look(StackCollector *self) {
    PyObject *frames = frames_of_threads(self);
    PyObject *ident = PyLong_FromUnsignedLong(self->thread);
    PyObject *frame = frames && ident && PyDict_Check(frames) ? PyDict_GetItem(frames, ident) : NULL;
    if (frame) keep(self, frame, frames);
    else __atomic_store_n(&self->asked, 0, __ATOMIC_SEQ_CST); /* the thread has ended */
    Py_XDECREF(ident);
    Py_XDECREF(frames);
    PyErr_Clear();
}

/* ------------------------------------------------------------------------------------------- our thread */

static int leave_call(StackCollector *self) {
    return switching.leave ? switching.leave(switching.interpreter, answer, self, 0) : Py_AddPendingCall(answer, self);
}

static void ask(StackCollector *self) {
    self->asked_at_ns = ticker_now_ns();
    self->asked_unix_ns = ticker_read(CLOCK_REALTIME);
    __atomic_store_n(&self->asked, 1, __ATOMIC_SEQ_CST);
    if (!self->is_main && !switching.leave) return;
    if (!__atomic_exchange_n(&self->queued, 1, __ATOMIC_SEQ_CST) && leave_call(self))
        __atomic_store_n(&self->queued, 0, __ATOMIC_SEQ_CST); /* the queue is full */
    struct timespec patience = {.tv_sec = 0, .tv_nsec = PATIENCE_NS};
    if (switching.answers_at_once && __atomic_load_n(&self->asked, __ATOMIC_SEQ_CST)) nanosleep(&patience, NULL);
}

/* Take the GIL, and look where nothing has answered meanwhile. */
static PyThreadState *ask_by_hand(StackCollector *self, PyThreadState *state) {
    switching_hurry();
    PyEval_RestoreThread(state);
    switching_calm();
    int wanted = __atomic_load_n(&self->asked, __ATOMIC_SEQ_CST) && !__atomic_load_n(&self->ended, __ATOMIC_SEQ_CST);
    if (wanted) look(self);
    return PyEval_SaveThread();
}

/* Take samples for so long (ns), or until `wake`. The caller is the collector's own thread. */
static PyObject *StackCollector_collect(StackCollector *self, PyObject *duration) {
    long long duration_ns = PyLong_AsLongLong(duration);
    if (duration_ns == -1 && PyErr_Occurred()) return NULL;
    int64_t began_ns = ticker_now_ns(), end_ns = began_ns + duration_ns, due_ns = self->due_ns;
    if (!due_ns || due_ns > began_ns + self->period_ns) due_ns = began_ns + ticker_pause_ns(&self->ticker, self->period_ns) / 2;
    if (!self->covered_until_ns) {
        self->covered_until_ns = began_ns;
        ticker_run_at_once(); /* once: the first call in this thread */
    }
    __atomic_store_n(&self->collecting, 1, __ATOMIC_SEQ_CST);
    PyThreadState *state = PyEval_SaveThread();
    while (!__atomic_load_n(&self->ended, __ATOMIC_SEQ_CST)) {
        int64_t now_ns = ticker_now_ns(), period_ns = self->period_ns;
        if (now_ns >= end_ns) break;
        if (due_ns < now_ns - period_ns) due_ns = now_ns; /* the machine kept us waiting: nobody knows what ran meanwhile */
        int64_t until_ns = period_ns > 0 && due_ns < end_ns ? due_ns : end_ns;
        if (until_ns > now_ns) {
            if (ticker_sleep(&self->ticker, until_ns)) break;
            continue;
        }
        if (__atomic_load_n(&self->paused, __ATOMIC_SEQ_CST)) {
            due_ns = now_ns + ticker_pause_ns(&self->ticker, period_ns);
            continue;
        }
        ask(self);
        if (__atomic_load_n(&self->asked, __ATOMIC_SEQ_CST)) state = ask_by_hand(self, state);
        int64_t pause_ns = ticker_pause_ns(&self->ticker, period_ns), covered_ns = ticker_now_ns();
        due_ns += pause_ns;
        if (due_ns < covered_ns) due_ns = covered_ns + pause_ns; /* the answer came late, and stands for that time as well */
    }
    self->due_ns = due_ns; /* a period may be longer than many a call of this */
    PyEval_RestoreThread(state);
    __atomic_store_n(&self->collecting, 0, __ATOMIC_SEQ_CST);
    return Py_NewRef(Py_None);
}

/* Ask for nothing any more, and wait so long (ns) until our thread has left `collect`. Whether it has.

   It is to be called before the interpreter ends: our thread asks without the GIL, and what it asks of an interpreter that
   is gone ends the process. */
static PyObject *StackCollector_end(StackCollector *self, PyObject *patience) {
    enum { GLANCE_NS = 200000 };
    long long patience_ns = PyLong_AsLongLong(patience);
    if (patience_ns == -1 && PyErr_Occurred()) return NULL;
    int64_t until_ns = ticker_now_ns() + patience_ns;
    struct timespec glance = {.tv_sec = 0, .tv_nsec = GLANCE_NS};
    __atomic_store_n(&self->ended, 1, __ATOMIC_SEQ_CST);
    ticker_wake(&self->ticker);
    PyThreadState *state = PyEval_SaveThread();
    while (__atomic_load_n(&self->collecting, __ATOMIC_SEQ_CST) && ticker_now_ns() < until_ns) nanosleep(&glance, NULL);
    PyEval_RestoreThread(state);
    return PyBool_FromLong(!__atomic_load_n(&self->collecting, __ATOMIC_SEQ_CST));
}

/* After a fork: the child has no thread of ours, and the interval is not to stay as short as we may just have made it. */
static PyObject *StackCollector_abandon(StackCollector *self, PyObject *nothing) {
    __atomic_store_n(&self->ended, 1, __ATOMIC_SEQ_CST);
    switching_calm();
    return Py_NewRef(Py_None);
}

static PyObject *StackCollector_wake(StackCollector *self, PyObject *nothing) {
    ticker_wake(&self->ticker);
    return Py_NewRef(Py_None);
}

static PyObject *StackCollector_take(StackCollector *self, PyObject *nothing) {
    PyObject *taken = self->samples, *empty = PyList_New(0);
    if (!empty) return NULL;
    self->samples = empty;
    return taken;
}

/* The stack of any frame, as samples have it. */
static PyObject *StackCollector_stack_of(StackCollector *self, PyObject *frame) {
    PyObject *stack = stack_of(self, frame);
    if (PyErr_Occurred()) PyErr_Clear();
    return stack ? stack : PyTuple_New(0);
}

/* ------------------------------------------------------------------------------------------- the type */

static int StackCollector_init(StackCollector *self, PyObject *args, PyObject *kwargs) {
    PyObject *tracker, *current_frames;
    static char *names[] = {"tracker", "current_frames", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", names, &tracker, &current_frames)) return -1;
    if (self->samples) {
        PyErr_SetString(PyExc_TypeError, "a collector is made once");
        return -1;
    }
    if (ticker_init(&self->ticker)) {
        PyErr_SetString(PyExc_OSError, "no clock to sleep by");
        return -1;
    }
    self->waits = !switching.answers_at_once && !switching.set_us;
    self->tracker = Py_NewRef(tracker);
    self->current_frames = Py_NewRef(current_frames);
    self->samples = PyList_New(0);
    self->f_back = PyUnicode_InternFromString("f_back");
    self->phase = PyUnicode_InternFromString("phase");
    self->index = PyUnicode_InternFromString("index");
    Py_INCREF(self); /* for ever: a pending call may come after everybody has let go. A process makes one or two. */
    return self->samples && self->f_back && self->phase && self->index ? 0 : -1;
}

static PyMemberDef members[] = {{"period_ns", T_LONGLONG, offsetof(StackCollector, period_ns), 0, NULL},
                                {"spent_ns", T_LONGLONG, offsetof(StackCollector, spent_ns), READONLY, NULL},
                                {"dropped", T_LONGLONG, offsetof(StackCollector, dropped), READONLY, NULL},
                                {"thread", T_ULONG, offsetof(StackCollector, thread), 0, NULL},
                                {"waits", T_BOOL, offsetof(StackCollector, waits), READONLY, NULL},
                                {"paused", T_BOOL, offsetof(StackCollector, paused), 0, NULL},
                                {"is_main", T_BOOL, offsetof(StackCollector, is_main), 0, NULL},
                                {NULL, 0, 0, 0, NULL}};

static PyMethodDef methods[] = {{"collect", (PyCFunction)StackCollector_collect, METH_O, NULL},
                                {"wake", (PyCFunction)StackCollector_wake, METH_NOARGS, NULL},
                                {"end", (PyCFunction)StackCollector_end, METH_O, NULL},
                                {"abandon", (PyCFunction)StackCollector_abandon, METH_NOARGS, NULL},
                                {"take", (PyCFunction)StackCollector_take, METH_NOARGS, NULL},
                                {"stack_of", (PyCFunction)StackCollector_stack_of, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_init, StackCollector_init},
                              {Py_tp_members, members},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, "See ddprof/capture/stacks/collector.py."},
                              {0, NULL}};

static PyType_Spec spec = {"ddprof.capture.stacks._stacks.StackCollector", sizeof(StackCollector), 0, Py_TPFLAGS_DEFAULT, slots};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_stacks", .m_doc = "Samples of Python stacks.", .m_size = -1};

PyMODINIT_FUNC PyInit__stacks(void) {
    switching_init();
    PyObject *module = PyModule_Create(&definition), *type = module ? PyType_FromSpec(&spec) : NULL;
    if (!type || PyModule_AddObject(module, "StackCollector", type)) {
        Py_XDECREF(type);
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
