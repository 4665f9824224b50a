/* Processes one spectrum, from its row of the batch to its summary and components. */
#ifndef SPECTRUM_H
#define SPECTRUM_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "best.h"
#include "compatible.h"
#include "correlation.h"
#include "flatness.h"
#include "gaussline.h"
#include "linear.h"
#include "noise.h"
#include "polynomial.h"
#include "solver.h"
#include "workspace.h"


/* A spectrum with fewer channels of data than this is not fitted. */
#define MIN_VALID 5
/* Least noise, as a fraction of the largest channel. Less is rounding error. */
#define NOISE_LEAST 1e-15
/* Largest factor by which amplitude and width are varied to see how the errors change. */
#define WIDENING_REACH 2.0

/* Every buffer starts at a multiple of this, bytes: the widest vector. */
#define ALIGNMENT 64

static double *carve(char **at, size_t count)
{
    double *p = (double *)*at;
    *at += (count * sizeof(double) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return p;
}

/* Lays the workspace out from start on and returns its size. The first call, with NULL, only measures it. */
static size_t lay_out(gl_workspace *ws, char *start)
{
    char *at = start;
    size_t n = (size_t)ws->n_pad, k = (size_t)ws->capacity;
    double **rows[] = {&ws->level, &ws->tilt, &ws->y, &ws->w, &ws->residual, &ws->base, &ws->trial, &ws->other_trial, &ws->saved_residual,
                       &ws->valid, &ws->scratch, &ws->snr, &ws->snr_scale, &ws->root_weight, &ws->white,
                       &ws->other_white, &ws->pull, &ws->good};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double *row = carve(&at, n + 2 * ROW_MARGIN);
        *rows[i] = row + ROW_MARGIN;
    }
    for (int p = 0; p < ws->n_base; p++) {
        ws->base_value[p] = carve(&at, n + 2 * ROW_MARGIN) + ROW_MARGIN;
        ws->base_pull[p] = carve(&at, n + 2 * ROW_MARGIN) + ROW_MARGIN;
    }
    if (ws->n_base) {
        ws->levelled = carve(&at, n);
        ws->base_cross = carve(&at, 3 * BASE_TERMS * k);
    }
    ws->taps = carve(&at, (size_t)(ORDER_MAX + 1) * (n + 2 * ROW_MARGIN)) + ROW_MARGIN;
    ws->precision = carve(&at, 2 * WHITENING_REACH);
    ws->weight_sum = carve(&at, n + 1);
    ws->bells = carve(&at, n * k);
    ws->mask = (unsigned char *)carve(&at, 3 * (n + 8) / 8 + 1);
    ws->ridges = (Ridge *)carve(&at, n);
    ws->peaks = (Peak *)carve(&at, (n / 2 + 2) * sizeof(Peak) / sizeof(double));
    ws->depth_rows = carve(&at, 2 * (size_t)ws->scale_stride);
    ws->scale_rows = carve(&at, (size_t)ws->scale_stride * (size_t)(ws->scales_max + 1));
    Comp **models[] = {&ws->comp, &ws->saved, &ws->guess, &ws->params_now, &ws->params_try, &ws->dead, &ws->curved};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) *models[i] = (Comp *)carve(&at, 3 * k);
    unsigned char **flags[] = {&ws->tested, &ws->dirty, &ws->unconverged, &ws->saved_unconverged, &ws->saved_tested,
                              &ws->covariance_bad};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) *flags[i] = (unsigned char *)carve(&at, k / 8 + 1);
    ws->frozen = (unsigned char *)carve(&at, 3 * k / 8 + 1);
    int **lists[] = {&ws->cluster, &ws->label, &ws->member};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) *lists[i] = (int *)carve(&at, k);
    ws->envelope = (int *)carve(&at, 3 * k);
    ws->window = (Window *)carve(&at, k);
    ws->moments = (Moments *)carve(&at, 10 * k);
    ws->normal = carve(&at, 9 * k * k);
    ws->system = carve(&at, 9 * k * k);
    ws->second = carve(&at, 6 * k);
    double **vectors[] = {&ws->gradient, &ws->scale, &ws->step};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) *vectors[i] = carve(&at, 3 * k);
    ws->inverse = carve(&at, 9 * k);
    ws->covariance = carve(&at, 4 * k);
    return (size_t)(at - start);
}

static void workspace_free(gl_workspace *ws)
{
    if (!ws) return;
    free(ws->memory);
    free(ws);
}

static gl_workspace *workspace_new(const gl_batch *batch, int is_caller)
{
    int32_t channels = batch->channels;
    gl_workspace *ws = calloc(1, sizeof *ws);
    if (!ws) return NULL;
    ws->n = channels;
    ws->n_pad = (channels + 15) / 16 * 16;
    ws->capacity = batch->params.max_components;
    ws->n_base = batch->params.baseline_order + 1;
    ws->watch = batch->watch;
    ws->is_caller = is_caller;
    ws->scales_max = scale_count(channels);
    ws->scale_pad = ((2 << (ws->scales_max - 1)) + 15) / 16 * 16;
    ws->scale_stride = ws->n_pad + 2 * ws->scale_pad;
    ws->memory = calloc(1, lay_out(ws, NULL) + ALIGNMENT);
    if (!ws->memory) {
        free(ws);
        return NULL;
    }
    lay_out(ws, (char *)(((uintptr_t)ws->memory + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT));
    set_scale_norms(ws);
    return ws;
}

/* Interpolates blank channels linearly, so that the search for starting peaks finds no gap. Their weight is zero: no
 * fit and no statistic uses them. Called with the spectrum scaled, because differences of unscaled ones can overflow. */
static void bridge_blanks(gl_workspace *ws)
{
    for (int i = 0, last = -1; i <= ws->n; i++) {
        if (i < ws->n && !(ws->w[i] > 0.0)) continue;
        double left = last >= 0 ? ws->y[last] : 0.0, right = i < ws->n ? ws->y[i] : 0.0;
        for (int j = last + 1; j < i; j++) ws->y[j] = left + (right - left) * (j - last) / (double)(i - last);
        last = i;
    }
}

/* Sets the model of the noise's correlation from the channels x, in units of the local noise up to a factor. Returns
 * the variance of the noise if it is correlated. Otherwise returns a negative number: the white-noise estimate is
 * kept. */
static double learn_correlation(gl_workspace *ws, const gl_batch *batch, const double *x)
{
    const double *given = batch->correlation_mode == GL_CORRELATION_GIVEN ? batch->correlation : NULL;
    if (given && batch->n_lags < 2) return -1.0;
    double variance = estimate_correlation(ws, x, given == NULL);
    int most = batch->n_lags - 1 < ORDER_MAX ? batch->n_lags - 1 : ORDER_MAX;
    if (given) set_correlation(ws, given, most, 0.0, 0);
    return variance;
}

/* Ends the loading of a row if only the shape of the noise is given: estimates the scale from channels / shape. */
static uint32_t load_shaped(gl_workspace *ws, const gl_batch *batch, int exponent)
{
    double shrink = ldexp(1.0, -(exponent < -1000 ? -1000 : exponent));
    int count = 0;
    for (int i = 0; i < ws->n_pad; i++) ws->y[i] *= shrink;
    if (ws->n_base) remove_first_baseline(ws);
    if (ws->n_valid < ws->n) bridge_blanks(ws);
    for (int i = 0; i < ws->n_pad; i++) {
        ws->trial[i] = ws->y[i] * sqrt(ws->w[i]);
        if (i < ws->n && ws->w[i] > 0.0) ws->valid[count++] = ws->trial[i];
    }
    double rms = noise_estimate(ws->valid, count, ws->mask, ws->scratch, ws->snr);
    if (!(rms > NOISE_LEAST)) return GL_NO_NOISE;
    if (batch->correlation_mode != GL_CORRELATION_WHITE) {
        double variance = learn_correlation(ws, batch, ws->trial);
        if (variance > 0.0) rms = sqrt(variance);
    }
    ws->unit = rms / shrink;
    for (int i = 0; i < ws->n; i++) ws->y[i] /= rms;
    for (int p = 0; p < ws->n_base; p++) ws->base_start[p] /= rms;
    return 0;
}

/* Reads the row and finds blanks, noise and weights. Returns 0 and the spectrum in noise units, or the flag that says
 * why it cannot be fitted. */
static uint32_t load_spectrum(gl_workspace *ws, const gl_batch *batch, size_t row, uint32_t *flags)
{
    int n = ws->n, valid;
    const float *f = (const float *)batch->data + row * (size_t)n;
    const double *d = (const double *)batch->data + row * (size_t)n;
    const double *noise = batch->noise ? batch->noise + (ptrdiff_t)row * batch->noise_row_stride : NULL;
    if (batch->is_float32)
        for (int i = 0; i < n; i++) ws->y[i] = (double)f[i];
    else
        memcpy(ws->y, d, (size_t)n * sizeof *d);
    for (int i = n; i < ws->n_pad; i++) ws->y[i] = NAN;
    if (noise)
        for (int i = 0; i < n; i++) {
            double s = noise[i * batch->noise_channel_stride];
            if (!(s > 0.0 && s < INFINITY)) ws->y[i] = NAN;
        }
    vd tops = vset(0.0), count_sum = vset(0.0), one = vset(1.0), zero = vset(0.0);
    for (int i = 0; i < ws->n_pad; i += VW) { /* v - v is zero for finite v only */
        vd v = vload(ws->y + i);
        vi good = (v - v) == zero;
        v = (vd)((vi)v & good);
        vd weight = (vd)((vi)one & good), size = (vd)((vi)v & INT64_MAX);
        vi up = size > tops;
        tops = (vd)(((vi)size & up) | ((vi)tops & ~up));
        count_sum += weight;
        vstore(ws->y + i, v);
        vstore(ws->w + i, weight);
    }
    double top = 0.0;
    for (int j = 0; j < VW; j++) top = tops[j] > top ? tops[j] : top;
    valid = (int)vsum(count_sum);
    ws->n_valid = valid;
    ws->unit = NAN;
    if (valid < n) *flags |= GL_BLANK;
    if (valid < MIN_VALID) return GL_NO_DATA;
    int exponent = 0;
    if (top > 0.0) (void)frexp(top, &exponent);
    double rms;
    if (noise) { /* weights relative to the harmonic mean square of the given noise */
        double least = INFINITY, sum = 0.0;
        for (int i = 0; i < n; i++)
            if (ws->w[i] > 0.0) {
                double s = noise[i * batch->noise_channel_stride];
                least = s < least ? s : least;
            }
        for (int i = 0; i < n; i++)
            if (ws->w[i] > 0.0) {
                double ratio = least / noise[i * batch->noise_channel_stride];
                ws->w[i] = ratio * ratio;
                sum += ws->w[i];
            }
        double mean = sum / valid;
        for (int i = 0; i < n; i++) ws->w[i] /= mean;
        rms = least / sqrt(mean);
        ws->uniform = batch->noise_channel_stride == 0;
        ws->unit = rms;
        if (batch->noise_is_shape && rms > 0.0 && isfinite(rms)) return load_shaped(ws, batch, exponent);
        if (!(rms > 0.0) || !isfinite(rms) || !isfinite(top / rms) || top / rms > 1.0 / NOISE_LEAST) return GL_NO_NOISE;
        for (int i = 0; i < n; i++) ws->y[i] /= rms;
        if (ws->n_base) remove_first_baseline(ws);
        if (valid < n) bridge_blanks(ws);
        if (batch->correlation_mode != GL_CORRELATION_WHITE) {
            for (int i = 0; i < ws->n_pad; i++) ws->trial[i] = ws->y[i] * sqrt(ws->w[i]);
            (void)learn_correlation(ws, batch, ws->trial);
        }
        return 0;
    }
    ws->uniform = 1;
    /* a power of two keeps squares finite and changes no digit */
    double shrink = ldexp(1.0, -(exponent < -1000 ? -1000 : exponent));
    for (int i = 0; i < ws->n_pad; i++) ws->y[i] *= shrink;
    if (ws->n_base) remove_first_baseline(ws);
    if (valid < n) bridge_blanks(ws);
    const double *with_data = ws->y;
    if (valid < n) {
        int count = 0;
        for (int i = 0; i < n; i++) {
            ws->valid[count] = ws->y[i];
            count += ws->w[i] > 0.0;
        }
        with_data = ws->valid;
    }
    rms = noise_estimate(with_data, valid, ws->mask, ws->scratch, ws->snr);
    if (!(rms > NOISE_LEAST)) return GL_NO_NOISE;
    if (batch->correlation_mode != GL_CORRELATION_WHITE) {
        double variance = learn_correlation(ws, batch, ws->y);
        if (variance > 0.0) rms = sqrt(variance);
    }
    ws->unit = rms / shrink;
    double inv = 1.0 / rms;
    for (int i = 0; i < n; i++) ws->y[i] *= inv;
    for (int p = 0; p < ws->n_base; p++) ws->base_start[p] *= inv;
    return 0;
}

/* Normal matrix of the components last evaluated, as a sum over whitened channels. The errors need it near an edge or a
 * blank, and for a width of less than a channel. Returns -1 if a limit ends the spectrum before. */
static int exact_normal(gl_workspace *ws, const Comp *c, int k)
{
    int n = 3 * k;
    for (int j = 0; j < k; j++) {
        Window win = ws->window[j];
        int lo = win.lo > WHITENING_REACH ? win.lo - WHITENING_REACH : 0;
        int hi = win.hi < ws->n_pad - WHITENING_REACH ? win.hi + WHITENING_REACH : ws->n_pad;
        const double *bell = ws->bells + (size_t)j * ws->n_pad;
        for (int p = 0; p < 3; p++) { /* g, g z, g z^2, whitened twice */
            if (out_of_budget_now(ws)) return -1;
            memset(ws->base + lo - (lo ? WHITENING_REACH : 0), 0, (size_t)(hi - lo + WHITENING_REACH) * sizeof(double));
            for (int i = win.lo; i < win.hi; i++) {
                double z = (i - c[j].mu) / c[j].s;
                ws->base[i] = bell[i] * (p == 0 ? 1.0 : p == 1 ? z : z * z);
            }
            whiten(ws, ws->base, lo, hi, ws->other_white);
            if (lo) memset(ws->other_white + lo - WHITENING_REACH, 0, WHITENING_REACH * sizeof(double));
            memset(ws->other_white + hi, 0, WHITENING_REACH * sizeof(double));
            whiten_back(ws, ws->other_white, lo, hi, ws->pull);
            double left = p == 0 ? 1.0 : c[j].a / c[j].s;
            for (int i = 0; i <= j; i++) {
                if (3 * i < ws->envelope[3 * j]) continue;
                Window both = ws->window[i];
                both.lo = both.lo > lo ? both.lo : lo;
                both.hi = both.hi < hi ? both.hi : hi;
                Moments m = pull_moments(c[i], both, ws->bells + (size_t)i * ws->n_pad, ws->pull);
                double right = c[i].a / c[i].s, *row = ws->normal + (size_t)(3 * j + p) * n + 3 * i;
                row[0] = left * m.c[0];
                row[1] = left * right * m.c[1];
                row[2] = left * right * m.c[2];
            }
        }
        ws->work += 6 * (hi - lo);
    }
    return 0;
}

/* Variances from the inverse of the normal matrix of each cluster (the Fisher information). */
static void covariances(gl_workspace *ws)
{
    memset(ws->label, 0, (size_t)ws->n_comp * sizeof *ws->label);
    for (int seed = 0; seed < ws->n_comp; seed++) {
        if (ws->label[seed]) continue;
        int k = cluster_of(ws, seed, FINAL_COUPLING, ws->cluster), n = 3 * k, bad;
        int *idx = ws->cluster;
        sort_by_mean(ws, idx, k);
        for (int j = 0; j < k; j++) {
            ws->params_now[j] = ws->comp[idx[j]];
            ws->window[j] = window_of(ws->params_now[j], 0, ws->n_pad);
            bell_add(ws->params_now[j], 0.0, ws->window[j], ws->bells + (size_t)j * ws->n_pad, ws->base);
            ws->work += ws->window[j].hi - ws->window[j].lo;
        }
        memcpy(ws->trial, ws->residual, (size_t)ws->n_pad * sizeof(double));
        memset(ws->base_rest, 0, sizeof ws->base_rest);
        if (ws->order) {
            whiten(ws, ws->trial, 0, ws->n_pad, ws->white);
            bad = assemble_correlated(ws, ws->params_now, k, 0, ws->n_pad) || exact_normal(ws, ws->params_now, k);
        } else {
            bad = assemble(ws, ws->params_now, k, 0, ws->n_pad);
        }
        if (!bad) {
            project_normal(ws, ws->params_now, k);
            freeze_and_scale(ws, ws->params_now, k);
            build_system(ws, k, 0.0, 0);
            bad = factor(ws, n);
        }
        for (int j = 0; j < k; j++) {
            double *out = ws->covariance + 4 * idx[j];
            if (n > FACTOR_ROWS && out_of_budget(ws)) bad = 1;
            ws->covariance_bad[idx[j]] = (unsigned char)(bad != 0);
            if (bad) continue;
            /* columns 3j..3j+2 of the inverse factor; the inverse's entries are their products */
            double *x = ws->inverse;
            int start = 3 * j;
            for (int c = 0; c < 3; c++) {
                double *col = x + (size_t)c * n;
                for (int i = start; i < n; i++) {
                    const double *l = ws->system + (size_t)i * n;
                    double s = i == start + c ? 1.0 : 0.0;
                    for (int q = ws->envelope[i] > start ? ws->envelope[i] : start; q < i; q++) s -= l[q] * col[q];
                    col[i] = s * l[i];
                }
            }
            double v[3] = {0.0, 0.0, 0.0}, as = 0.0;
            for (int i = start; i < n; i++) {
                for (int c = 0; c < 3; c++) v[c] += x[(size_t)c * n + i] * x[(size_t)c * n + i];
                as += x[i] * x[2 * (size_t)n + i];
            }
            for (int c = 0; c < 3; c++) {
                double scale = ws->scale[start + c];
                out[c] = ws->frozen[start + c] ? NAN : v[c] * scale * scale;
            }
            out[3] = as * ws->scale[start] * ws->scale[start + 2];
        }
    }
}

/* Roots and running sums of the weights. */
static void prepare_weights(gl_workspace *ws)
{
    ws->plain = ws->uniform && ws->n_valid == ws->n;
    double sum = 0.0;
    for (int i = 0; i < ws->n_pad; i++) ws->root_weight[i] = ws->uniform ? ws->w[i] : sqrt(ws->w[i]);
    for (int i = 0; i < ws->n && !ws->plain; i++) {
        ws->weight_sum[i] = sum;
        sum += ws->w[i];
    }
    ws->weight_sum[ws->n] = sum;
}

/* Variances of a lone component, up to the local weight. */
static void lone_variances(const gl_workspace *ws, Comp c, double v[3])
{
    double b[3][3];
    product_block(ws, c, c, b);
    double determinant = b[0][0] * b[2][2] - b[0][2] * b[0][2];
    v[0] = b[2][2] / determinant;
    v[1] = 1.0 / b[1][1];
    v[2] = b[0][0] / determinant;
}

/* Factors of the errors, because these are computed at the estimate: a width that is too small by chance has an error
 * that is too small, the more so the stronger the correlation, so that pulls are too wide. If the measurement is
 * repeated with the estimate c as the truth and the covariance v (variances of a, mu, s; of a with s), the mean square
 * pull is the mean of x^2 V(c) / V(c + x d) over a normal x: d is one sigma of the parameter with the correlated
 * change of the other one. Three-point Gauss-Hermite quadrature. For the mean, which changes no other parameter,
 * without the x^2. */
static void widening(const gl_workspace *ws, Comp c, const double v[4], double factor[3])
{
    double here[3], there[3], square[3] = {0.0, 2.0 / 3.0, 0.0};
    lone_variances(ws, c, here);
    for (int p = 0; p < 3; p += 2)
        for (int side = -1; side <= 1; side += 2) {
            double x = side * sqrt(3.0 / v[p]);
            Comp moved = {clamp(c.a + x * (p ? v[3] : v[0]), c.a / WIDENING_REACH, WIDENING_REACH * c.a), c.mu,
                          clamp(c.s + x * (p ? v[2] : v[3]), c.s / WIDENING_REACH, WIDENING_REACH * c.s)};
            lone_variances(ws, moved, there);
            square[p] += 0.5 * here[p] / there[p];
            if (p) square[1] += here[1] / there[1] / 6.0;
        }
    for (int p = 0; p < 3; p++) factor[p] = square[p] > 1.0 && square[p] < INFINITY ? sqrt(square[p]) : 1.0;
}

/* Whether every number of the result is finite in the unit of the input. */
static int is_representable(const gl_workspace *ws, const gl_summary *summary)
{
    double largest = 0.0;
    for (int i = 0; i < ws->n_comp; i++) {
        Comp c = ws->comp[i];
        largest = fmax(largest, c.a * fmax(1.0, c.s * SQRT_2PI));
    }
    for (int p = 0; p < BASE_TERMS; p++) largest = fmax(largest, fabs(summary->baseline[p]) / ws->unit);
    return isfinite(largest * ws->unit) && isfinite(summary->rms) && isfinite(summary->chi2_reduced) &&
           isfinite(summary->aicc);
}

/* The result of a spectrum whose fit or result is not finite: the flag that says so, and no component. */
static void drop_result(gl_workspace *ws, gl_summary *summary)
{
    ws->n_comp = 0;
    summary->rms = summary->chi2_reduced = summary->aicc = summary->correlation = summary->effective_channels = NAN;
    for (int p = 0; p < BASE_TERMS; p++) summary->baseline[p] = NAN;
    summary->flags = (summary->flags & ~(uint32_t)GL_CONVERGED) | GL_NOT_FINITE;
}

/* Writes the components to the arena, in input units and by rising mean, and sets the summary's flags for them. */
static int store(gl_workspace *ws, gl_summary *summary, gl_arena *arena)
{
    size_t need = arena->used + (size_t)ws->n_comp;
    if (need > arena->capacity) {
        size_t capacity = arena->capacity ? 2 * arena->capacity : 1024;
        while (capacity < need) capacity *= 2;
        gl_component *grown = realloc(arena->items, capacity * sizeof *grown);
        if (!grown) return -1;
        arena->items = grown;
        arena->capacity = capacity;
    }
    summary->first = arena->used;
    summary->n_components = ws->n_comp;
    for (int i = 0; i < ws->n_comp; i++) ws->member[i] = i;
    sort_by_mean(ws, ws->member, ws->n_comp);
    double u = ws->unit;
    for (int i = 0; i < ws->n_comp; i++) {
        int k = ws->member[i];
        Comp c = ws->comp[k];
        const double *v = ws->covariance + 4 * k;
        int bad = ws->covariance_bad[k];
        uint32_t flags = at_bound(ws, c) ? GL_COMPONENT_AT_BOUND : 0;
        for (int j = 0; j < ws->n_comp; j++)
            if (j != k && are_blended(ws, c, ws->comp[j])) flags |= GL_COMPONENT_BLENDED;
        if (FWHM_PER_SIGMA * c.s < ws->response_fwhm) flags |= GL_COMPONENT_NARROW;
        if (!is_valid(ws, c)) flags |= GL_COMPONENT_BELOW_THRESHOLD;
        double variance = c.s * c.s * v[0] + c.a * c.a * v[2] + 2.0 * c.a * c.s * v[3];
        gl_component out = {c.a * u, c.mu, c.s, NAN, NAN, NAN, c.a * u * c.s * SQRT_2PI, NAN, 0};
        if (!bad) {
            double wider[3] = {1.0, 1.0, 1.0};
            if (ws->order && v[0] > 0.0 && v[2] > 0.0) widening(ws, c, v, wider);
            double scale = ws->order ? ws->error_scale : 1.0;
            out.amplitude_err = u * sqrt(v[0]) * scale * wider[0];
            out.mean_err = sqrt(v[1]) * scale * wider[1];
            out.stddev_err = sqrt(v[2]) * scale * wider[2];
            out.flux_err = u * SQRT_2PI * scale * sqrt(variance > 0.0 ? variance : v[0] * c.s * c.s);
        }
        double errors[4] = {out.amplitude_err, out.mean_err, out.stddev_err, out.flux_err};
        if (!all_finite(errors, 4)) flags |= GL_COMPONENT_NO_ERROR;
        out.flags = flags;
        if (flags & GL_COMPONENT_AT_BOUND) summary->flags |= GL_AT_BOUND;
        if (flags & GL_COMPONENT_BLENDED) summary->flags |= GL_BLENDED;
        arena->items[arena->used++] = out;
    }
    return 0;
}

/* Fits the row from its given components. */
static void fit_given(gl_workspace *ws, const gl_batch *batch, size_t row)
{
    const int64_t *at = batch->start_offsets + row;
    decompose_best(ws, batch->starts + 3 * at[0], at[1] - at[0]);
}

/* Writes the coefficients of the baseline, in input units. */
static void store_baseline(const gl_workspace *ws, gl_summary *out)
{
    double c[BASE_TERMS];
    channel_coefficients(ws, c);
    for (int p = 0; p < BASE_TERMS; p++) out->baseline[p] = c[p] * ws->unit;
}

/* The flags of what is left beside lines and baseline. */
static uint32_t flags_of_rest(gl_workspace *ws)
{
    subtract_baseline(ws, ws->base_coef, 0, ws->n_pad, ws->y);
    return flatness_flags(ws);
}

static void add_limit_flags(const gl_workspace *ws, gl_summary *out)
{
    if (ws->full || ws->out_of_work || ws->work > ws->work_limit) out->flags |= GL_LIMIT_HIT;
    if (ws->out_of_time) out->flags |= GL_TIME_LIMIT;
}

/* One row, from load to store. */
static int decompose_one(gl_workspace *ws, const gl_batch *batch, size_t row, gl_summary *out, gl_arena *arena)
{
    double start = seconds_now();
    memset(out, 0, sizeof *out);
    ws->params = &batch->params;
    start_budget(ws, start, batch->params.time_budget_s);
    ws->not_finite = ws->full = ws->n_comp = ws->order = ws->has_basis = 0;
    ws->n_base = batch->params.baseline_order + 1;
    uint32_t refused = load_spectrum(ws, batch, row, &out->flags);
    out->rms = refused ? NAN : ws->unit;
    out->chi2_reduced = out->aicc = out->correlation = out->effective_channels = NAN;
    for (int p = 0; p < BASE_TERMS; p++) out->baseline[p] = NAN;
    if (refused) {
        out->flags |= refused;
    } else {
        memcpy(ws->residual, ws->y, (size_t)ws->n_pad * sizeof(double));
        prepare_weights(ws);
        ws->mf_snr_min = batch->params.mf_snr_min;
        ws->response_fwhm = ws->order ? response_fwhm(ws) : 0.0;
        ws->fwhm_min = batch->params.fwhm_min;
        if (ws->fwhm_min < 0.0) ws->fwhm_min = fmax(FWHM_CHANNELS, FWHM_OF_RESPONSE * ws->response_fwhm);
        if (ws->order) {
            ws->mf_snr_min = correlated_threshold(ws, ws->mf_snr_min);
            set_taps(ws);
        }
        if (ws->n_base) set_base_pull(ws);
        if (ws->n_base) set_base_norms(ws);
        if (batch->params.preset == GL_PRESET_COMPATIBLE) decompose_compatible(ws);
        else if (batch->starts) fit_given(ws, batch, row);
        else decompose_best(ws, NULL, 0);
        level_residual(ws);
        add_limit_flags(ws, out);
        extend_budget(ws);
        covariances(ws);
        add_limit_flags(ws, out);
        int converged = !(out->flags & (GL_LIMIT_HIT | GL_TIME_LIMIT));
        for (int i = 0; i < ws->n_comp; i++) converged &= !ws->unconverged[i];
        if (converged) out->flags |= GL_CONVERGED;
        out->correlation = ws->order ? ws->lags[1] : 0.0;
        out->effective_channels = ws->order ? ws->n_valid * ws->zero_frequency : ws->n_valid;
        double chi2 = chi_square(ws);
        int k = 3 * ws->n_comp + ws->n_base;
        store_baseline(ws, out);
        if (ws->order) chi2 /= ws->whitened_variance;
        out->chi2_reduced = ws->n_valid > k ? chi2 / (ws->n_valid - k) : NAN;
        out->aicc = aicc_of(chi2, ws->unit, ws->n_valid, k);
        if (ws->not_finite || !is_representable(ws, out)) drop_result(ws, out);
        else out->flags |= flags_of_rest(ws);
    }
    int failed = store(ws, out, arena);
    out->work = ws->work;
    out->seconds = seconds_now() - start;
    return failed;
}

/* The number of channels well above the noise. It predicts the time that a spectrum takes, and costs less than a
 * hundredth of it. The noise comes from the mean size of the first differences, whose expectation is 2 / sqrt(pi) of
 * it. Channels beyond the last complete vector are ignored. */
#define ABOVE_NOISE 3.0
#define EXPECTED_COST(name, type, lane_int)                                                                  \
    static double name(const type *y, int n)                                                                 \
    {                                                                                                        \
        enum { LANES = 8 * VW / sizeof(type) };                                                              \
        typedef type vector __attribute__((vector_size(8 * VW)));                                            \
        typedef type loose __attribute__((vector_size(8 * VW), aligned(sizeof(type)), may_alias));           \
        typedef lane_int lanes __attribute__((vector_size(8 * VW)));                                         \
        const vector zero = {0}, infinite = zero + (type)INFINITY;                                           \
        vector steps = zero;                                                                                 \
        lanes counts = {0};                                                                                  \
        for (int i = 0; i + LANES < n; i += LANES) {                                                         \
            vector d = *(const loose *)(y + i + 1) - *(const loose *)(y + i);                                \
            vector size = (vector)(((lanes)d & (d > zero)) | ((lanes)-d & (d < zero)));                      \
            steps += (vector)((lanes)size & (size < infinite));                                              \
        }                                                                                                    \
        type total = 0;                                                                                      \
        for (int j = 0; j < LANES; j++) total += steps[j];                                                   \
        const vector threshold = zero + (type)(ABOVE_NOISE * 0.5 * SQRT_PI) * total / (type)n;               \
        for (int i = 0; i + LANES <= n; i += LANES) counts -= *(const loose *)(y + i) > threshold;           \
        double cost = 0.0;                                                                                   \
        for (int j = 0; j < LANES; j++) cost += (double)counts[j];                                           \
        return cost;                                                                                         \
    }
EXPECTED_COST(expected_cost_of_floats, float, int32_t)
EXPECTED_COST(expected_cost_of_doubles, double, int64_t)

static double expected_cost(const gl_batch *batch, size_t row)
{
    size_t first = row * (size_t)batch->channels;
    return batch->is_float32 ? expected_cost_of_floats((const float *)batch->data + first, batch->channels)
                             : expected_cost_of_doubles((const double *)batch->data + first, batch->channels);
}
#endif
