/* The clocks. */
#ifndef CLOCK_H
#define CLOCK_H

#include <time.h>

static inline double clock_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Wall-clock time. */
static inline double seconds_now(void) { return clock_seconds(CLOCK_MONOTONIC); }

/* Processor time of the calling thread. Its clock is a system call, which takes many times as long to read. */
static inline double thread_seconds(void) { return clock_seconds(CLOCK_THREAD_CPUTIME_ID); }
#endif
