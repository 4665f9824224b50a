/* Whether a batch is to end early. */
#ifndef WATCH_H
#define WATCH_H

#include "clock.h"
#include "gaussline.h"

/* Seconds between two questions. */
#define WATCH_INTERVAL_S 0.05

static inline int watch_ended(const gl_batch_watch *watch)
{
    return watch && __atomic_load_n(&watch->ended, __ATOMIC_RELAXED);
}

/* For the thread that called for the batch. */
static inline void watch_ask(gl_batch_watch *watch, double now)
{
    if (!watch || watch_ended(watch) || now - watch->asked_s < WATCH_INTERVAL_S) return;
    watch->asked_s = now;
    if (watch->ask(watch->state)) __atomic_store_n(&watch->ended, 1, __ATOMIC_RELAXED);
}
#endif
