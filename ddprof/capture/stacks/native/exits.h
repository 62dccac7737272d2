/* Tells a function of each SystemExit that is made: one that a script raises by itself is gone, with its line, before Python
   calls what was registered for its end. */
static struct {
    initproc init; /* of SystemExit, in whose place ours stands */
    PyObject *told;
    PyInterpreterState *interpreter; /* whose function that is */
} exits;

static int exit_init(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (exits.init(self, args, kwargs)) return -1;
    if (!exits.told || PyInterpreterState_Get() != exits.interpreter) return 0;
    PyObject *answer = PyObject_CallFunctionObjArgs(exits.told, self, NULL);
    Py_XDECREF(answer);
    return answer ? 0 : -1; /* what the handler of a signal raised meanwhile */
}

/* The place among the pointers of an object that holds `init`; NULL: none. The stable ABI hides where it lies, not what it is. */
static void **place_of(PyObject *object, int pointers, void *init) {
    void **at = (void **)object, **end = at + pointers;
    while (at < end && *at != init) at++;
    return at < end ? at : NULL;
}

/* tell_exits(function): False where this Python has no such place. None ends it. */
static PyObject *tell_exits(PyObject *module, PyObject *function) {
    enum { OF_TYPE = 48, OF_WRAPPER = 7 }; /* in CPython 3.10, and later ones only grew */
    (void)module;
    if (!exits.init) {
        void *init = PyType_GetSlot((PyTypeObject *)PyExc_SystemExit, Py_tp_init);
        PyObject *wrapper = PyObject_GetAttrString(PyExc_SystemExit, "__init__"); /* what subclasses inherit */
        void **slot = place_of(PyExc_SystemExit, OF_TYPE, init), **inherited;
        if (!wrapper) return NULL;
        inherited = place_of(wrapper, OF_WRAPPER, init);
        Py_DECREF(wrapper); /* the type keeps it */
        if (!init || !slot || !inherited) Py_RETURN_FALSE;
        exits.init = (initproc)init;
        exits.interpreter = PyInterpreterState_Get();
        *slot = *inherited = (void *)exit_init;
    }
    PyObject *before = exits.told;
    exits.told = function == Py_None ? NULL : Py_NewRef(function);
    Py_XDECREF(before);
    Py_RETURN_TRUE;
}
