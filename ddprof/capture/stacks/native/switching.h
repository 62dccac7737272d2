/* How soon a thread that runs Python code attends to what another thread asks of it.

   From Python 3.13 on it does so before its next call or jump. Before, it notices only a thread that has waited for the GIL for the
   switch interval, 5 ms: whoever samples by waiting sees no code that lets go of the GIL sooner, and blames the call behind it
   (benchmarks/README.md). Where the interval can be set without the GIL (3.10, 3.11) it is shortened for the moment we wait. */
#ifndef DDPROF_SWITCHING_H
#define DDPROF_SWITCHING_H

#include <dlfcn.h>
#include <stdlib.h>

enum { HURRY_US = 200 }; /* Python code that lets go of the GIL more often than this is sampled where it does */

static struct {
    int answers_at_once;
    unsigned long (*get_us)(void);
    void (*set_us)(unsigned long);
} switching;

static void switching_init(void) {
    int minor = atoi(Py_GetVersion() + 2); /* "3.11.7 (main, ..." */
    switching.answers_at_once = minor >= 13;
    if (minor > 11) return; /* the interval belongs to an interpreter, and asking for it takes the GIL */
    *(void **)&switching.get_us = dlsym(RTLD_DEFAULT, "_PyEval_GetSwitchInterval");
    *(void **)&switching.set_us = dlsym(RTLD_DEFAULT, "_PyEval_SetSwitchInterval");
    if (!switching.get_us) switching.set_us = NULL;
}

/* What is to be given to `switching_calm`, 0 where nothing was changed. */
static unsigned long switching_hurry(void) {
    unsigned long before_us = switching.set_us ? switching.get_us() : 0;
    if (before_us <= HURRY_US) return 0;
    switching.set_us(HURRY_US);
    return before_us;
}

/* With the GIL. What the script has set meanwhile stays. */
static void switching_calm(unsigned long before_us) {
    if (before_us && switching.get_us() == HURRY_US) switching.set_us(before_us);
}

#endif
