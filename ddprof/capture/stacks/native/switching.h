/* How soon a thread that runs Python code attends to what another thread asks of it.

   From Python 3.13 on it does so before its next call or jump. On 3.12 so does any thread with a call that is left to all threads, by
   a function that CPython exports for its own extensions (`leave`). Before, it notices only a thread that has waited for the GIL for
   the switch interval, 5 ms: whoever samples by waiting sees no code that lets go of the GIL sooner, and blames the call behind it
   (benchmarks/README.md). Where the interval can be set without the GIL (3.10, 3.11) it is shortened to nothing while our thread begins
   to wait, so that a burst of Python between two operators is seen where it is. A thread that waits looks up once an interval: as soon
   as ours has asked for the GIL, another one makes the interval long again, for C code may keep the GIL for long. */
#ifndef DDPROF_SWITCHING_H
#define DDPROF_SWITCHING_H

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>

#include "ticker.h"

enum { AT_ONCE_US = 1, CALM_NS = 100000 }; /* our thread's first look is over after that */

static struct {
    int answers_at_once;
    PyInterpreterState *interpreter;
    int (*leave)(PyInterpreterState *, int (*)(void *), void *, int is_for_main_thread);
    unsigned long (*get_us)(void);
    void (*set_us)(unsigned long);
} switching;

static void switching_init(void) {
    int minor = atoi(Py_GetVersion() + 2); /* "3.11.7 (main, ..." */
    if (minor == 12) *(void **)&switching.leave = dlsym(RTLD_DEFAULT, "_PyEval_AddPendingCall");
    switching.interpreter = PyInterpreterState_Get();
    switching.answers_at_once = minor >= 13 || switching.leave;
    if (minor > 11) return; /* the interval belongs to an interpreter, and asking for it takes the GIL */
    *(void **)&switching.get_us = dlsym(RTLD_DEFAULT, "_PyEval_GetSwitchInterval");
    *(void **)&switching.set_us = dlsym(RTLD_DEFAULT, "_PyEval_SetSwitchInterval");
    if (!switching.get_us) switching.set_us = NULL;
}

static struct {
    Ticker ticker;
    unsigned long before_us;
    pid_t owner; /* a child has no such thread */
} calmer;

/* What the script has set meanwhile stays. The usual interval is kept: a fork may fall between any two lines of this. */
static void switching_calm(void) {
    unsigned long before_us = __atomic_load_n(&calmer.before_us, __ATOMIC_SEQ_CST);
    if (before_us && switching.get_us() == AT_ONCE_US) switching.set_us(before_us);
}

static void *calmer_run(void *nothing) {
    struct timespec moment = {.tv_sec = 0, .tv_nsec = CALM_NS};
#ifdef PR_SET_NAME
    prctl(PR_SET_NAME, "ddprof-calmer", 0, 0, 0);
#endif
    ticker_run_at_once();
    for (;;) {
        if (!ticker_sleep(&calmer.ticker, INT64_MAX)) continue;
        nanosleep(&moment, NULL);
        switching_calm();
    }
    return nothing;
}

/* Begin the thread, once in a process. No signal is to reach it, for a signal that it takes interrupts nobody else's call. */
static int calmer_start(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (calmer.owner == getpid()) return 1;
    if (ticker_init(&calmer.ticker) || pthread_attr_init(&attributes)) return 0;
    sigfillset(&all);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, &attributes, calmer_run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (!failed) calmer.owner = getpid();
    return !failed;
}

/* From our thread, right before it takes the GIL. */
static void switching_hurry(void) {
    unsigned long before_us = switching.set_us ? switching.get_us() : 0;
    int is_long = before_us > AT_ONCE_US && calmer_start(); /* else it is the script's own: ours is long again by now */
    __atomic_store_n(&calmer.before_us, is_long ? before_us : 0, __ATOMIC_SEQ_CST);
    if (!is_long) return;
    switching.set_us(AT_ONCE_US);
    ticker_wake(&calmer.ticker);
}

#endif
