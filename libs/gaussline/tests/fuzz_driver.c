/* Hostile batches for the kernel, to be run with AddressSanitizer and UndefinedBehaviorSanitizer.
 * usage: fuzz_driver ROUNDS SEED [SEEDS]. It makes ROUNDS batches of each of the seeds SEED, SEED + 1, ... and runs each
 * of them on every instruction set of the machine. Exit code 1 if a result breaks a guarantee. */
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

static void add_line(double *y, int n, double a, double mu, double s)
{
    for (int i = 0; i < n; i++) y[i] += a * exp(-0.5 * (i - mu) * (i - mu) / (s * s));
}

enum { KINDS = 16 };

/* A spectrum of one of the kinds that make fitters fail. */
static void fill(double *y, int n, int kind)
{
    double level = pow(10.0, 12.0 * uniform() - 6.0);
    for (int i = 0; i < n; i++) y[i] = kind == 0 ? 0.0 : kind == 1 ? level : normal();
    if (kind == 2) /* lines of any height and width */
        for (int k = (int)(12 * uniform()); k >= 0; k--) {
            double a = pow(10.0, 7.0 * uniform() - 1.0), mu = n * (1.4 * uniform() - 0.2);
            add_line(y, n, a, mu, 0.2 + n * pow(uniform(), 4));
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
    if (kind == 11 || kind == 12) /* correlated */
        for (int i = 1; i < n; i++) y[i] += (kind == 11 ? 0.97 : -0.9) * y[i - 1];
    if (kind == 13) { /* correlated noise with lines and spikes of one channel */
        for (int pass = 0; pass < 3; pass++)
            for (int i = 0; i + 1 < n; i++) y[i] = 0.7 * (y[i] + y[i + 1]);
        for (int k = 0; k < 3; k++) add_line(y, n, 5.0 + 20.0 * uniform(), n * uniform(), 2.0 + 8.0 * uniform());
        for (int k = 0; k < 2; k++) y[random_bits() % (uint64_t)n] += pow(10.0, 2.3 + 5.0 * uniform());
    }
    if (kind == 14) /* near the largest numbers */
        for (int i = 0; i < n; i++) y[i] = uniform() < 0.1 ? NAN : (y[i] + 20.0 * (i % 50 < 20)) * pow(10.0, 305.0 + uniform());
}

static int bad_component(const gl_component *c, const gl_summary *s, int n)
{
    if (!isfinite(c->amplitude) || !isfinite(c->flux)) return 1;
    if (!(c->mean >= 0.0 && c->mean <= n && c->stddev >= 0.3 && c->stddev <= 0.5 * n)) return 1;
    int sure = isfinite(c->amplitude_err) && isfinite(c->mean_err) && isfinite(c->stddev_err) && isfinite(c->flux_err);
    if (!sure && !(c->flags & GL_COMPONENT_NO_ERROR)) return 1;
    return !(s->rms > 0.0);
}

static int bad_result(const gl_batch *batch, const gl_result *result)
{
    const uint32_t nothing = GL_NO_DATA | GL_NO_NOISE | GL_NOT_FINITE;
    const uint32_t not_flat = GL_OFFSET | GL_SLOPE | GL_RIPPLE | GL_NEGATIVE;
    for (size_t r = 0; r < batch->n; r++) {
        const gl_summary *s = result->summaries + r;
        int broken = s->n_components > (s->flags & nothing ? 0 : batch->params.max_components);
        broken |= s->flags & nothing ? !isnan(s->rms) : !(isfinite(s->chi2_reduced) && isfinite(s->aicc));
        broken |= s->flags & not_flat && (s->flags & nothing || batch->channels < 128);
        for (int p = 0; p < GL_BASELINE_TERMS; p++) {
            broken |= s->flags & nothing ? !isnan(s->baseline[p]) : !isfinite(s->baseline[p]);
            broken |= p > batch->params.baseline_order && !(s->flags & nothing) && s->baseline[p] != 0.0;
        }
        for (int k = 0; k < s->n_components; k++)
            broken |= bad_component(result->arenas[s->arena].items + s->first + k, s, batch->channels);
        if (broken) {
            fprintf(stderr, "row %zu of %d channels: a promise is broken (flags %u)\n", r, batch->channels, s->flags);
            return 1;
        }
    }
    return 0;
}

/* A value of usual, or at every third draw one between least and most. */
static double around(double usual, double least, double most)
{
    return random_bits() % 3 ? usual : least + (most - least) * uniform();
}

static gl_params any_params(int round)
{
    gl_params p = {.time_budget_s = round % 17 ? 1.0 : 0.0, .max_components = round % 5 ? 64 : 2};
    p.beta = around(3.5, 0.0, 8.0);
    p.snr_min = around(1.5, 0.0, 5.0);
    p.mf_snr_min = around(5.0, 0.5, 10.0);
    p.f_sep = around(1.2, 0.0, 3.0);
    p.neg_thresh = around(5.0, 0.0, 10.0);
    p.fwhm_min = random_bits() % 3 ? -1.0 : 3.0 * uniform() * (double)(random_bits() & 1);
    p.max_refine_iter = random_bits() % 4 ? 3 : (int32_t)(random_bits() % 8);
    p.preset = round & 1;
    p.second_start = round % 3 != 0;
    p.baseline_order = random_bits() % 3 ? -1 : (int32_t)(random_bits() % 4);
    return p;
}

static int fuzz_round(int round)
{
    static const int LENGTHS[] = {1, 4, 5, 8, 9, 31, 64, 100, 127, 128, 424, 1000, 1300};
    int n = LENGTHS[random_bits() % (sizeof LENGTHS / sizeof *LENGTHS)], rows = (int)(random_bits() % 12), failed = 0;
    double *data = malloc(sizeof(double) * (size_t)(n * rows + 1)), *noise = malloc(sizeof(double) * (size_t)n);
    float *small = malloc(sizeof(float) * (size_t)(n * rows + 1));
    for (int r = 0; r < rows; r++) fill(data + r * n, n, (int)(random_bits() % KINDS));
    for (int i = 0; i < n * rows; i++) small[i] = (float)fmax(-3.4e38, fmin(3.4e38, data[i]));
    for (int i = 0; i < n; i++) noise[i] = uniform() < 0.1 ? 0.0 : pow(10.0, 4.0 * uniform() - 2.0);
    gl_batch batch = {.is_float32 = (int)(random_bits() & 1), .n = (size_t)rows, .channels = n, .threads = 1 + round % 3};
    batch.data = batch.is_float32 ? (void *)small : (void *)data;
    batch.noise = random_bits() & 1 ? noise : NULL;
    batch.noise_channel_stride = 1;
    batch.params = any_params(round);
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
    for (int i = 0; i < 8; i++) starts[random_bits() % (3 * 5 * 12)] = i % 2 ? NAN : pow(10.0, 300.0 * uniform());
    for (int r = 0; r < rows; r++) offsets[r + 1] = offsets[r] + (int64_t)(random_bits() % 6);
    batch.starts = round % 6 == 2 ? starts : NULL;
    batch.start_offsets = offsets;
    for (batch.isa = GL_ISA_BASELINE; batch.isa <= gl_best_isa() && !failed; batch.isa++) {
        gl_result result;
        failed = gl_decompose_batch(&batch, &result) != 0 || bad_result(&batch, &result);
        gl_result_free(&result);
    }
    gl_batch_watch over = {.ended = 1};
    gl_result nothing;
    batch.watch = &over;
    failed |= gl_decompose_batch(&batch, &nothing) != GL_ENDED || nothing.summaries || nothing.arenas;
    free(data);
    free(small);
    free(noise);
    return failed;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, seeds = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    for (uint64_t last = seed + seeds; seed < last; seed++) {
        state = (2 * seed + 1) * 0x9E3779B97F4A7C15ULL; /* neighbouring seeds have unlike first numbers */
        for (int round = 0; round < rounds; round++)
            if (fuzz_round(round)) {
                fprintf(stderr, "seed %llu, round %d\n", (unsigned long long)seed, round);
                return 1;
            }
    }
    return 0;
}
