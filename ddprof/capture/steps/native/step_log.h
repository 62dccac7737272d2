/* Closed steps: the first ones and the recent ones in memory, and the latest in the mapped file of ddprof/capture/files/ring.py. */
#ifndef DDPROF_STEP_LOG_H
#define DDPROF_STEP_LOG_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cut_file.h"

enum { FIRST_STEPS = 64, RECENT_STEPS = 4096, STEP_FIELDS = 14 }; /* as in ddprof/capture/steps/tracker.py */

typedef struct {
    int64_t fields[STEP_FIELDS]; /* of step.Step */
    int64_t disturbed;
} LoggedStep;

typedef struct {
    LoggedStep *kept; /* FIRST_STEPS, then a ring of RECENT_STEPS; pages that no step has reached are never touched */
    int64_t booked;
    char *file; /* the mapping, NULL without one */
    size_t file_bytes, file_at;
    int64_t file_capacity, file_written;
} StepLog;

static int log_init(StepLog *log) {
    memset(log, 0, sizeof *log);
    log->kept = calloc(FIRST_STEPS + RECENT_STEPS, sizeof(LoggedStep));
    return log->kept ? 0 : -1;
}

static void log_unmap(StepLog *log) {
    cut_file_leave(log->file);
    if (log->file) munmap(log->file, log->file_bytes);
    log->file = NULL;
}

static void log_free(StepLog *log) {
    log_unmap(log);
    free(log->kept);
    log->kept = NULL;
}

/* Write each further step to a file too. Whoever made it has claimed its blocks: a hole on a full disk would be a SIGBUS.
   -1 with errno where it cannot be mapped. */
static int log_map(StepLog *log, const char *path, size_t at, int64_t capacity) {
    size_t bytes = at + (size_t)capacity * (STEP_FIELDS + 1) * sizeof(int64_t);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return -1;
    void *file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (file == MAP_FAILED) return -1;
    log->file = file;
    log->file_bytes = bytes;
    log->file_at = at;
    log->file_capacity = capacity;
    log->file_written = 0;
    cut_file_watch(log->file, bytes);
    return 0;
}

static void log_book(StepLog *log, const LoggedStep *step) {
    int64_t place = log->booked < FIRST_STEPS ? log->booked : FIRST_STEPS + (log->booked - FIRST_STEPS) % RECENT_STEPS;
    log->kept[place] = *step;
    log->booked++;
    if (!log->file) return;
    char *to = log->file + log->file_at + (log->file_written % log->file_capacity) * (STEP_FIELDS + 1) * sizeof(int64_t);
    log->file_written++;
    memcpy(to + sizeof(int64_t), step->fields, sizeof step->fields);
    memcpy(to, &log->file_written, sizeof(int64_t)); /* last: a reader takes a record for whole by its number */
}

/* How many steps are kept, and the n-th of them, oldest first. */
static int64_t log_kept(const StepLog *log) {
    int64_t most = FIRST_STEPS + RECENT_STEPS;
    return log->booked < most ? log->booked : most;
}

static const LoggedStep *log_at(const StepLog *log, int64_t n) {
    int64_t overwritten = log->booked - log_kept(log);
    return log->kept + (n < FIRST_STEPS ? n : FIRST_STEPS + (n - FIRST_STEPS + overwritten) % RECENT_STEPS);
}

#endif
