/* A mapped file may be cut short by whoever can write to it, or lose its server. The next write to its pages is a SIGBUS, which
   would end the job: the pages are replaced by memory, and the job goes on. Costs nothing while nothing happens. A handler that the
   script puts over ours later (faulthandler) is in charge. */
#ifndef DDPROF_CUT_FILE_H
#define DDPROF_CUT_FILE_H

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>

static struct {
    char *volatile from; /* the one mapping that is watched; NULL: none */
    size_t bytes;
    int installed; /* `before` is what our handler passes on to */
    struct sigaction before;
} cut_file;

static void cut_file_handler(int number, siginfo_t *info, void *context) {
    char *at = info->si_addr;
    int ours = info->si_code > 0 && cut_file.from && at >= cut_file.from && at < cut_file.from + cut_file.bytes;
    if (ours && mmap(cut_file.from, cut_file.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
                    != MAP_FAILED) return;
    if (cut_file.before.sa_flags & SA_SIGINFO) cut_file.before.sa_sigaction(number, info, context);
    else if (cut_file.before.sa_handler != SIG_DFL && cut_file.before.sa_handler != SIG_IGN) cut_file.before.sa_handler(number);
    else {
        sigaction(SIGBUS, &cut_file.before, NULL); /* what raised it is done again, and ends the process as without us */
        if (info->si_code <= 0) raise(number);     /* but for a signal that was sent */
    }
}

/* Watch a mapping, unless another one is watched already. */
static void cut_file_watch(char *from, size_t bytes) {
    struct sigaction action = {.sa_sigaction = cut_file_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (cut_file.from) return;
    sigemptyset(&action.sa_mask);
    if (!cut_file.installed && sigaction(SIGBUS, &action, &cut_file.before)) return;
    cut_file.installed = 1;
    cut_file.bytes = bytes;
    cut_file.from = from;
}

/* Before the mapping goes. Where somebody has put a handler over ours, ours stays below it and passes on. */
static void cut_file_leave(const char *from) {
    struct sigaction now;
    if (!from || cut_file.from != from) return;
    cut_file.from = NULL;
    if (!sigaction(SIGBUS, NULL, &now) && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == cut_file_handler)
        cut_file.installed = sigaction(SIGBUS, &cut_file.before, NULL) != 0;
}

#endif
