/* Distributes a batch over threads: expensive spectra first, one counter that every thread draws from. */
#include "gaussline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "watch.h"

/* Number of spectra whose cost a thread estimates at a time. */
#define ESTIMATE_DRAW 256
/* Number of spectra that a thread draws at a time: so many that threads rarely contend for the counter, so few that
 * all threads end at nearly the same time. */
#define DRAW 4
#define THREADS_MAX 256
/* Spectra whose expected costs agree to a factor of two are one class. Threads take a class in the order of its rows,
 * because the next row is then often the next in memory. */
#define COST_CLASSES 32

typedef struct {
    const gl_batch *batch;
    const gl_kernel *kernel;
    gl_result *result;
    unsigned char *classes; /* of each row */
    size_t *order;          /* rows, expensive ones first; NULL for the order of the rows */
    size_t estimated;       /* both are drawn from atomically */
    size_t next;
    int working;            /* threads that have a workspace, counted atomically */
    int failed;             /* set atomically */
    pthread_mutex_t lock;   /* of busy */
    pthread_cond_t ended;   /* a thread has ended */
    int busy;               /* threads other than the caller's that have not ended */
} Shared;

typedef struct {
    Shared *shared;
    int index; /* zero is the thread that called */
    void (*task)(Shared *, int);
} Worker;

int gl_best_isa(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return GL_ISA_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return GL_ISA_AVX2;
#endif
    return GL_ISA_BASELINE;
}

static const gl_kernel *kernel_for(int isa)
{
#if defined(__x86_64__)
    if (isa == GL_ISA_AVX512) return &gl_kernel_avx512;
    if (isa == GL_ISA_AVX2) return &gl_kernel_avx2;
#endif
    (void)isa;
    return &gl_kernel_baseline;
}

/* 0 for a cost below one, else one more than the whole part of its binary logarithm. */
static int class_of(double cost)
{
    int class = 0;
    for (double bound = 1.0; cost >= bound && class < COST_CLASSES - 1; bound *= 2.0) class++;
    return class;
}

/* Whether the batch ends early. The thread that called asks. */
static int is_over(Shared *s, int index)
{
    if (index == 0) watch_ask(s->batch->watch, seconds_now());
    return watch_ended(s->batch->watch) || __atomic_load_n(&s->failed, __ATOMIC_RELAXED);
}

static void estimate(Shared *s, int index)
{
    const gl_batch *batch = s->batch;
    while (!is_over(s, index)) {
        size_t from = __atomic_fetch_add(&s->estimated, ESTIMATE_DRAW, __ATOMIC_RELAXED);
        if (from >= batch->n) return;
        size_t to = from + ESTIMATE_DRAW < batch->n ? from + ESTIMATE_DRAW : batch->n;
        for (size_t row = from; row < to; row++)
            s->classes[row] = (unsigned char)class_of(s->kernel->expected_cost(batch, row));
    }
}

/* Counting sort of the rows by falling class. */
static void order_rows(Shared *s)
{
    size_t counts[COST_CLASSES] = {0}, at[COST_CLASSES], before = 0, n = s->batch->n;
    for (size_t row = 0; row < n; row++) counts[s->classes[row]]++;
    for (int class = COST_CLASSES - 1; class >= 0; before += counts[class--]) at[class] = before;
    for (size_t row = 0; row < n; row++) s->order[at[s->classes[row]]++] = row;
}

static void work(Shared *s, int index)
{
    const gl_batch *batch = s->batch;
    double start = thread_seconds();
    /* its counters change with every component, so they must not share a cache line with another thread's */
    gl_arena arena = {NULL, 0, 0, 0.0};
    gl_workspace *ws = s->kernel->workspace_new(batch, index == 0);
    if (ws) __atomic_fetch_add(&s->working, 1, __ATOMIC_RELAXED);
    while (ws && !is_over(s, index)) {
        size_t from = __atomic_fetch_add(&s->next, DRAW, __ATOMIC_RELAXED);
        if (from >= batch->n) break;
        size_t to = from + DRAW < batch->n ? from + DRAW : batch->n;
        for (size_t i = from; i < to; i++) {
            size_t row = s->order ? s->order[i] : i;
            gl_summary *summary = s->result->summaries + row;
            if (s->kernel->decompose(ws, batch, row, summary, &arena) != 0) {
                __atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
                break;
            }
            summary->arena = index;
        }
    }
    s->kernel->workspace_free(ws);
    arena.seconds = thread_seconds() - start;
    s->result->arenas[index] = arena;
}

static void *run_task(void *argument)
{
    Worker *me = argument;
    Shared *s = me->shared;
    me->task(s, me->index);
    pthread_mutex_lock(&s->lock);
    s->busy--;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Waits until the other threads have ended, and asks meanwhile whether to end the batch. */
static void wait_for_others(Shared *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->busy) {
        double until = clock_seconds(CLOCK_REALTIME) + WATCH_INTERVAL_S;
        struct timespec at = {(time_t)until, (long)((until - (double)(time_t)until) * 1e9)};
        pthread_cond_timedwait(&s->ended, &s->lock, &at);
        pthread_mutex_unlock(&s->lock);
        (void)is_over(s, 0);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

/* The caller's thread works too. If a thread cannot be started or gets no workspace, the others do its work. */
static void run_on_threads(Shared *s, void (*task)(Shared *, int), int threads)
{
    pthread_t handles[THREADS_MAX];
    Worker workers[THREADS_MAX];
    int started = 0;
    s->busy = threads - 1;
    for (int i = 1; i < threads; i++) {
        workers[i] = (Worker){s, i, task};
        if (pthread_create(&handles[started], NULL, run_task, &workers[i]) == 0) started++;
    }
    pthread_mutex_lock(&s->lock);
    s->busy -= threads - 1 - started;
    pthread_mutex_unlock(&s->lock);
    task(s, 0);
    wait_for_others(s);
    for (int i = 0; i < started; i++) pthread_join(handles[i], NULL);
}

void gl_result_free(gl_result *result)
{
    for (int i = 0; result->arenas && i < result->n_arenas; i++) free(result->arenas[i].items);
    free(result->arenas);
    free(result->summaries);
    memset(result, 0, sizeof *result);
}

int gl_decompose_batch(const gl_batch *batch, gl_result *result)
{
    int threads = batch->threads < 1 ? 1 : batch->threads > THREADS_MAX ? THREADS_MAX : batch->threads;
    if ((size_t)threads > (batch->n + DRAW - 1) / DRAW) threads = batch->n ? (int)((batch->n + DRAW - 1) / DRAW) : 1;
    memset(result, 0, sizeof *result);
    Shared shared = {batch, kernel_for(batch->isa == GL_ISA_AUTO ? gl_best_isa() : batch->isa), result, NULL, NULL,
                     0, 0, 0, 0, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    if (batch->watch) batch->watch->asked_s = seconds_now();
    result->n_arenas = threads;
    result->summaries = calloc(batch->n + 1, sizeof *result->summaries);
    result->arenas = calloc((size_t)threads, sizeof *result->arenas);
    if (threads > 1) {
        shared.classes = malloc(batch->n);
        shared.order = shared.classes ? malloc(batch->n * sizeof *shared.order) : NULL;
    }
    if (!result->summaries || !result->arenas) {
        free(shared.classes);
        free(shared.order);
        gl_result_free(result);
        return GL_NO_MEMORY;
    }
    if (shared.order) { /* without memory for it, rows are taken in their order */
        run_on_threads(&shared, estimate, threads);
        if (!watch_ended(batch->watch)) order_rows(&shared); /* else some rows have no class */
    }
    run_on_threads(&shared, work, threads);
    free(shared.classes);
    free(shared.order);
    int outcome = watch_ended(batch->watch) ? GL_ENDED : shared.failed || !shared.working ? GL_NO_MEMORY : GL_OK;
    if (outcome != GL_OK) gl_result_free(result);
    return outcome;
}
