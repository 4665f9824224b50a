/* Hostile batches for the kernel, to be run with AddressSanitizer and UndefinedBehaviorSanitizer.
 * usage: fuzz_driver ROUNDS SEED. Exit code 1 if a result breaks a guarantee. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gaussline.h"

static uint64_t state;

static uint64_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double uniform(void) { return (double)(random_bits() >> 11) / 9007199254740992.0; }

static double normal(void)
{
    return sqrt(-2.0 * log(1.0 - uniform())) * cos(6.283185307179586 * uniform());
}

/* A spectrum of one of the kinds that make fitters fail. */
static void fill(double *y, int n, int kind)
{
    double level = pow(10.0, 12.0 * uniform() - 6.0);
    for (int i = 0; i < n; i++) y[i] = kind == 0 ? 0.0 : kind == 1 ? level : normal();
    if (kind == 2) /* lines of any height and width */
        for (int k = (int)(12 * uniform()); k >= 0; k--) {
            double a = pow(10.0, 7.0 * uniform() - 1.0), mu = n * (1.4 * uniform() - 0.2), s = 0.2 + n * pow(uniform(), 4);
            for (int i = 0; i < n; i++) y[i] += a * exp(-0.5 * (i - mu) * (i - mu) / (s * s));
        }
    if (kind == 3) y[random_bits() % (uint64_t)n] = level * 1e6;
    if (kind == 4) /* saturated */
        for (int i = n / 3; i < n / 2; i++) y[i] = 100.0;
    if (kind == 5)
        for (int i = 0; i < n; i++) y[i] = -fabs(y[i]) * level;
    if (kind == 6) /* blanks */
        for (int i = 0; i < n; i++)
            if (uniform() < 0.3) y[i] = uniform() < 0.5 ? NAN : INFINITY;
    if (kind == 7) /* any bits */
        for (int i = 0; i < n; i++) {
            union { uint64_t u; double d; } any = {random_bits()};
            y[i] = any.d;
        }
    if (kind == 8) /* few levels, so equal values */
        for (int i = 0; i < n; i++) y[i] = floor(2.0 * y[i]);
    if (kind == 9) /* a comb */
        for (int i = 0; i < n; i++) y[i] += 50.0 * (i % 4 == 0);
    if (kind == 10) /* a ramp */
        for (int i = 0; i < n; i++) y[i] += i;
    if (kind >= 11) /* correlated */
        for (int i = 1; i < n; i++) y[i] += (kind == 11 ? 0.97 : -0.9) * y[i - 1];
}

static int bad_component(const gl_component *c, const gl_summary *s)
{
    if (!isfinite(c->amplitude) || !isfinite(c->mean) || !isfinite(c->stddev) || !isfinite(c->flux)) return 1;
    if (!(c->flags & GL_COMPONENT_NO_ERROR) && !(isfinite(c->mean_err) && isfinite(c->flux_err))) return 1;
    return !(s->rms > 0.0);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) | 1 : 88172645463325252ULL;
    static const int LENGTHS[] = {1, 4, 5, 8, 9, 31, 64, 100, 424, 1000};
    for (int round = 0; round < rounds; round++) {
        int n = LENGTHS[random_bits() % (sizeof LENGTHS / sizeof *LENGTHS)], rows = (int)(random_bits() % 12);
        double *data = malloc(sizeof(double) * (size_t)(n * rows + 1)), *noise = malloc(sizeof(double) * (size_t)n);
        float *small = malloc(sizeof(float) * (size_t)(n * rows + 1));
        for (int r = 0; r < rows; r++) fill(data + r * n, n, (int)(random_bits() % 13));
        for (int i = 0; i < n * rows; i++) small[i] = (float)fmax(-3.4e38, fmin(3.4e38, data[i]));
        for (int i = 0; i < n; i++) noise[i] = uniform() < 0.1 ? 0.0 : pow(10.0, 4.0 * uniform() - 2.0);
        gl_batch batch = {.is_float32 = (int)(random_bits() & 1), .n = (size_t)rows, .channels = n, .threads = 1 + round % 3};
        batch.data = batch.is_float32 ? (void *)small : (void *)data;
        batch.noise = random_bits() & 1 ? noise : NULL;
        batch.noise_channel_stride = 1;
        batch.isa = 1 + (int)(random_bits() % (uint64_t)gl_best_isa());
        batch.params = (gl_params){.beta = 3.5, .snr_min = 1.5, .mf_snr_min = 5.0, .f_sep = 1.2, .neg_thresh = 5.0, .fwhm_min = -1.0};
        batch.params.time_budget_s = round % 17 ? 1.0 : 0.0;
        batch.params.max_refine_iter = 3;
        batch.params.max_components = round % 5 ? 64 : 2;
        batch.params.preset = round & 1;
        batch.params.second_start = round % 3 != 0;
        double lags[9] = {1.0};
        for (int l = 1; l < 9; l++) lags[l] = 2.0 * uniform() - 1.0; /* most of these are not a valid correlation */
        if (round % 4 == 0)
            for (int l = 1; l < 9; l++) lags[l] = exp(-l * l / 9.0);
        batch.correlation_mode = (int)(random_bits() % 3);
        batch.correlation = lags;
        batch.n_lags = 1 + (int)(random_bits() % 9);
        double starts[3 * 5 * 12];
        int64_t offsets[13] = {0};
        for (int i = 0; i < 3 * 5 * 12; i++) starts[i] = n * (1.4 * uniform() - 0.2);
        for (int i = 0; i < 8; i++) starts[random_bits() % (3 * 5 * 12)] = i % 2 ? NAN : 1e300;
        for (int r = 0; r < rows; r++) offsets[r + 1] = offsets[r] + (int64_t)(random_bits() % 6);
        batch.starts = round % 6 == 2 ? starts : NULL;
        batch.start_offsets = offsets;
        gl_result result;
        if (gl_decompose_batch(&batch, &result) != 0) return 1;
        for (int r = 0; r < rows; r++) {
            const gl_summary *s = result.summaries + r;
            const gl_component *c = result.arenas[s->arena].items + s->first;
            int broken = s->n_components > batch.params.max_components;
            broken |= !(s->flags & (GL_NO_DATA | GL_NO_NOISE)) && !(isfinite(s->chi2_reduced) && isfinite(s->aicc));
            for (int k = 0; k < s->n_components; k++) broken |= bad_component(c + k, s);
            if (broken) {
                fprintf(stderr, "round %d row %d of %d channels: a promise is broken (flags %u)\n", round, r, n, s->flags);
                return 1;
            }
        }
        gl_result_free(&result);
        free(data);
        free(small);
        free(noise);
    }
    return 0;
}
