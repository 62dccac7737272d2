/* The clock of the stack collector: sleeps that another thread can end, and times between two samples that do not march in step
   with the training. */
#ifndef DDPROF_TICKER_H
#define DDPROF_TICKER_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

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
