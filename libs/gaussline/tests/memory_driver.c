/* Fails one allocation of a batch after the other: the result is the same as with all of them, or an error.
 * Link with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc. Exit code 1 if a result differs without an error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gaussline.h"

enum { ROWS = 40, CHANNELS = 424 };

/* The number of allocations to come before one fails; negative for none. */
static int until_failure = -1;

static int fails(void) { return __atomic_fetch_sub(&until_failure, 1, __ATOMIC_RELAXED) == 0; }

void *__real_malloc(size_t), *__real_calloc(size_t, size_t), *__real_realloc(void *, size_t);
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *old, size_t size) { return fails() ? NULL : __real_realloc(old, size); }

/* Whether both have the same numbers of components and chi-squares. */
static int same(const gl_result *a, const gl_result *b)
{
    for (int r = 0; r < ROWS; r++) {
        const gl_summary *s = a->summaries + r, *t = b->summaries + r;
        if (s->n_components != t->n_components || s->flags != t->flags || s->chi2_reduced != t->chi2_reduced) return 0;
    }
    return 1;
}

int main(void)
{
    static double data[ROWS * CHANNELS];
    for (int i = 0; i < ROWS * CHANNELS; i++) {
        double z = (i % CHANNELS - 200.0) / 6.0;
        data[i] = 20.0 * exp(-0.5 * z * z) + sin(17.0 * i * sqrt(i)) + sin(23.0 * i * sqrt(i + 3.0));
    }
    gl_batch batch = {.data = data, .n = ROWS, .channels = CHANNELS, .threads = 3};
    batch.params = (gl_params){.beta = 3.5, .snr_min = 1.5, .mf_snr_min = 5.0, .f_sep = 1.2, .neg_thresh = 5.0,
                               .fwhm_min = -1.0, .baseline_order = 1, .time_budget_s = 100.0, .max_refine_iter = 3, .max_components = 64};
    gl_result whole, result;
    if (gl_decompose_batch(&batch, &whole) != 0 || !whole.summaries[0].n_components) return 1;
    int errors = 0, failed = 1;
    for (int k = 0; failed; k++) {
        until_failure = k;
        int error = gl_decompose_batch(&batch, &result);
        failed = until_failure < 0;
        until_failure = -1;
        if (!error && !same(&whole, &result)) {
            fprintf(stderr, "the result differs because allocation %d failed, without an error\n", k);
            return 1;
        }
        errors += error != 0;
        gl_result_free(&result);
    }
    gl_result_free(&whole);
    printf("%d\n", errors);
    return 0;
}
