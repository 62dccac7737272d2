/* The clock of the stack collector: sleeps that another thread can end, and times between two samples that do not march in step
   with the training. */
#ifndef DDPROF_TICKER_H
#define DDPROF_TICKER_H

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t woken;
    int wanted; /* somebody wants the sleeper awake */
    uint32_t noise;
} Ticker;

static int64_t ticker_read(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t ticker_now_ns(void) { return ticker_read(CLOCK_MONOTONIC); }

static int ticker_init(Ticker *ticker) {
    pthread_condattr_t attributes;
    int failed = pthread_condattr_init(&attributes);
    if (failed) return failed;
    failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) || pthread_cond_init(&ticker->woken, &attributes) ||
             pthread_mutex_init(&ticker->lock, NULL);
    pthread_condattr_destroy(&attributes);
    ticker->wanted = 0;
    ticker->noise = 2463534242u;
    return failed;
}

/* Let this thread run as soon as it wakes, also on the core of a thread that computes: with a slice as short as the kernel has
   them it is the first whose turn it is (EEVDF; Linux 6.12 and later, no privilege is needed). A sampler that runs only once that
   thread sleeps sees it nowhere else. Elsewhere nothing changes. */
static void ticker_run_at_once(void) {
#ifdef PR_SET_TIMERSLACK
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0); /* ns; 50 us otherwise */
#endif
#if defined(SYS_sched_setattr) && defined(SYS_sched_getattr)
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } own;
    enum { SHORTEST_SLICE_NS = 100000, NORMAL = 0 };
    memset(&own, 0, sizeof own);
    if (syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) || own.policy != NORMAL) return;
    own.size = sizeof own;
    own.runtime_ns = SHORTEST_SLICE_NS;
    (void)!syscall(SYS_sched_setattr, 0, &own, 0);
#endif
}

/* Sleep until a time of the monotonic clock. 1: woken before, 0: not. */
static int ticker_sleep(Ticker *ticker, int64_t until_ns) {
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    pthread_mutex_lock(&ticker->lock);
    while (!ticker->wanted && !pthread_cond_timedwait(&ticker->woken, &ticker->lock, &until)) continue;
    int woken = ticker->wanted;
    ticker->wanted = 0;
    pthread_mutex_unlock(&ticker->lock);
    return woken;
}

static void ticker_wake(Ticker *ticker) {
    pthread_mutex_lock(&ticker->lock);
    ticker->wanted = 1;
    pthread_cond_signal(&ticker->woken);
    pthread_mutex_unlock(&ticker->lock);
}

/* Three to five quarters of a period, by turns that repeat nothing the job does (Marsaglia's xorshift). */
static int64_t ticker_pause_ns(Ticker *ticker, int64_t period_ns) {
    uint32_t x = ticker->noise;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    ticker->noise = x;
    return period_ns - period_ns / 4 + (int64_t)((double)x / 4294967296.0 * (double)(period_ns / 2));
}

/* The longest of them. */
static int64_t ticker_longest_ns(int64_t period_ns) { return period_ns + period_ns / 4; }

#endif
