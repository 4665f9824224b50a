/* The polynomial baseline that is fitted together with the lines.
 *
 * Its coefficients are linear, so they are no parameters of the solver: chi-square is always that with the best
 * baseline for the lines at hand. With B the powers of the place in the spectrum and Q the inverse covariance of the
 * noise, r^T Q r becomes r^T Q r - v^T G^-1 v, where v = B^T Q r and G = B^T Q B; the gradient is that of r without its
 * own baseline, and the normal matrix loses the part that the baseline can imitate.
 *
 * The noise and the first lines are looked for beside a first baseline, which ignores channels with signal. */
#ifndef POLYNOMIAL_H
#define POLYNOMIAL_H

#include <math.h>
#include <string.h>

#include "bell.h"
#include "correlation.h"
#include "noise.h"
#include "scales.h"
#include "simd.h"
#include "workspace.h"

/* Least pivot of the products of the powers, in units of their diagonal. Below it the highest power is left out. */
#define BASE_PIVOT 1e-9
/* The first baseline starts from an asymmetric fit: weight of a channel above it and below it, and its passes. */
#define EXPECTILE 0.05
#define EXPECTILE_PASSES 8
/* Place of that fit below the mean of normal noise, sigmas. */
#define EXPECTILE_DEPTH 1.2
/* Passes of a fit without the channels that have signal. */
#define CLIP_PASSES 10
/* A channel has signal if it, or the spectrum smoothed by three B3 passes, is this many sigmas above the baseline. A
 * channel that is far below is left out too. */
#define CLIP_CHANNEL 3.0
#define CLIP_SMOOTH 2.5
#define CLIP_BELOW 4.5
#define CLIP_LEVEL 3
/* Channels between two whose difference measures the noise. */
#define DIFFERENCE 6
/* A parameter whose sensitivity falls by more than this factor, squared, is left to the baseline. */
#define BASE_SHARE_LEAST 1e-9

/* Factors the products g[p * BASE_TERMS + q], q <= p, in place. Returns how many of the first terms can be fitted. */
static int factor_terms(double *g, int terms)
{
    for (int p = 0; p < terms; p++)
        for (int q = 0; q <= p; q++) {
            double *row = g + p * BASE_TERMS, own = row[q], s = own;
            for (int k = 0; k < q; k++) s -= row[k] * g[q * BASE_TERMS + k];
            if (q < p) row[q] = s * g[q * BASE_TERMS + q];
            else if (s > BASE_PIVOT * own) row[p] = 1.0 / sqrt(s); /* the diagonal holds reciprocals */
            else return p;
        }
    return terms;
}

/* x = F^-1 x with the factor F. */
INLINE void solve_forward(const double *f, int terms, double *x)
{
    for (int p = 0; p < terms; p++) {
        for (int q = 0; q < p; q++) x[p] -= f[p * BASE_TERMS + q] * x[q];
        x[p] *= f[p * BASE_TERMS + p];
    }
}

INLINE void solve_terms(const double *f, int terms, double *x)
{
    solve_forward(f, terms, x);
    for (int p = terms - 1; p >= 0; p--) {
        for (int q = p + 1; q < terms; q++) x[p] -= f[q * BASE_TERMS + p] * x[q];
        x[p] *= f[p * BASE_TERMS + p];
    }
}

/* The powers of the place: -1 at the first channel with data, 1 at the last. */
static void set_powers(gl_workspace *ws)
{
    int first = 0, last = ws->n - 1;
    while (first < last && !(ws->w[first] > 0.0)) first++;
    while (last > first && !(ws->w[last] > 0.0)) last--;
    ws->base_first = first;
    ws->base_step = last > first ? 2.0 / (last - first) : 0.0;
    for (int i = 0; i < ws->n_pad; i++) {
        double place = clamp((i - first) * ws->base_step - 1.0, -1.0, 1.0), power = i < ws->n ? 1.0 : 0.0;
        for (int p = 0; p < ws->n_base; p++, power *= place) ws->base_value[p][i] = power;
    }
}

/* x -= the baseline with the coefficients c over [lo, hi). */
static void subtract_baseline(const gl_workspace *ws, const double *c, int lo, int hi, double *x)
{
    for (int p = 0; p < ws->n_base; p++) {
        const double *value = ws->base_value[p];
        vd factor = vset(c[p]);
        for (int i = lo; i < hi; i += VW) vstore(x + i, vload(x + i) - factor * vload(value + i));
    }
}

/* Fits a baseline to x with the given weights. Returns whether there are enough channels for it. */
static int fit_powers(const gl_workspace *ws, const double *weight, const double *x, double *c)
{
    double g[BASE_TERMS * BASE_TERMS];
    for (int p = 0; p < ws->n_base; p++) {
        vd own = vset(0.0);
        for (int i = 0; i < ws->n_pad; i += VW) own += vload(weight + i) * vload(ws->base_value[p] + i) * vload(x + i);
        c[p] = vsum(own);
        for (int q = 0; q <= p; q++) {
            vd product = vset(0.0);
            for (int i = 0; i < ws->n_pad; i += VW)
                product += vload(weight + i) * vload(ws->base_value[p] + i) * vload(ws->base_value[q] + i);
            g[p * BASE_TERMS + q] = vsum(product);
        }
    }
    if (factor_terms(g, ws->n_base) < ws->n_base) return 0;
    solve_terms(g, ws->n_base, c);
    return 1;
}

/* r = y without a baseline, in units of the local noise. */
INLINE void without_baseline(const gl_workspace *ws, const double *c, const double *root, double *r)
{
    memcpy(r, ws->y, (size_t)ws->n_pad * sizeof *r);
    subtract_baseline(ws, c, 0, ws->n_pad, r);
    for (int i = 0; i < ws->n_pad; i += VW) vstore(r + i, vload(r + i) * vload(root + i));
}

/* 1.4826 times the median size of the negative values; zero if there are none. */
static double sigma_below(gl_workspace *ws, const double *x)
{
    int count = 0;
    for (int i = 0; i < ws->n; i++) {
        ws->valid[count] = -x[i];
        count += x[i] < 0.0;
    }
    return count ? MAD_TO_SIGMA * median_of(ws->valid, count, ws->snr) : 0.0;
}

/* Sets the weight of channels with signal to zero. shift is added to the residual r. Returns how many are left. */
static int clip_signal(gl_workspace *ws, double *r, double sigma, double shift, int smoothed, double *weight)
{
    int level = CLIP_LEVEL < ws->scales_max ? CLIP_LEVEL : ws->scales_max, count = 0;
    const double *smooth = scale_row(ws, level);
    double limit = INFINITY;
    if (smoothed) {
        memcpy(scale_row(ws, 0), r, (size_t)ws->n_pad * sizeof *r);
        for (int j = 0; j < level; j++) smooth_pass(ws, j);
        limit = CLIP_SMOOTH * sigma_below(ws, smooth);
    }
    for (int i = 0; i < ws->n_pad; i++) {
        double x = r[i] + shift;
        int quiet = x < CLIP_CHANNEL * sigma && x > -CLIP_BELOW * sigma && !(smoothed && smooth[i] > limit);
        weight[i] = quiet ? ws->w[i] : 0.0;
        count += quiet && ws->w[i] > 0.0;
    }
    return count;
}

/* Noise from the differences of channels that are a few apart. */
static double sigma_of_differences(gl_workspace *ws, const double *root)
{
    int count = 0;
    for (int i = 0; i + DIFFERENCE < ws->n; i++) {
        ws->valid[count] = fabs(ws->y[i + DIFFERENCE] * root[i + DIFFERENCE] - ws->y[i] * root[i]);
        count += root[i] > 0.0 && root[i + DIFFERENCE] > 0.0;
    }
    return count ? MAD_TO_SIGMA * sqrt(0.5) * median_of(ws->valid, count, ws->snr) : 0.0;
}

/* Fits again and again without the channels that have signal beside the last fit. Returns how many have none. */
static int clipped_baseline(gl_workspace *ws, const double *root, double sigma, double shift, double *c)
{
    double *r = ws->trial, *weight = ws->good;
    int count = 0;
    for (int pass = 0; pass < CLIP_PASSES; pass++) {
        double next[BASE_TERMS], change = 0.0;
        without_baseline(ws, c, root, r);
        count = clip_signal(ws, r, sigma, pass ? 0.0 : shift, pass > 0, weight);
        if (!fit_powers(ws, weight, ws->y, next)) return 0;
        for (int p = 0; p < ws->n_base; p++) {
            change = fmax(change, fabs(next[p] - c[p]));
            c[p] = next[p];
        }
        if (pass && !(change > 1e-3 * sigma)) break;
    }
    return count;
}

/* Subtracts the first baseline from the spectrum: that which leaves the most channels without signal. It starts from a
 * fit of all channels and from one of the low ones. Needs the weights. */
static void remove_first_baseline(gl_workspace *ws)
{
    double *root = ws->root_weight, *weight = ws->good, plain[BASE_TERMS] = {0.0}, low[BASE_TERMS];
    memset(ws->base_start, 0, sizeof ws->base_start);
    memset(ws->base_coef, 0, sizeof ws->base_coef);
    set_powers(ws);
    while (!fit_powers(ws, ws->w, ws->y, plain)) {
        if (--ws->n_base == 0) return;
    }
    memcpy(low, plain, sizeof low);
    for (int i = 0; i < ws->n_pad; i++) root[i] = sqrt(ws->w[i]);
    for (int pass = 0; pass < EXPECTILE_PASSES; pass++) {
        without_baseline(ws, low, root, ws->trial);
        for (int i = 0; i < ws->n_pad; i++) weight[i] = ws->w[i] * (ws->trial[i] > 0.0 ? EXPECTILE : 1.0 - EXPECTILE);
        if (!fit_powers(ws, weight, ws->y, low)) break;
    }
    double sigma = sigma_of_differences(ws, root);
    int most = clipped_baseline(ws, root, sigma, 0.0, plain);
    int other = clipped_baseline(ws, root, sigma, -EXPECTILE_DEPTH * sigma, low);
    const double *best = other > most ? low : plain;
    if (most <= 2 * ws->n_base && other <= 2 * ws->n_base) { /* signal everywhere */
        (void)fit_powers(ws, ws->w, ws->y, plain);
        best = plain;
    }
    memcpy(ws->base_start, best, sizeof ws->base_start);
    subtract_baseline(ws, best, 0, ws->n_pad, ws->y);
    ws->work += (EXPECTILE_PASSES + 2.0 * CLIP_PASSES) * ws->n;
}

/* Products of the powers with the inverse covariance, which ends the preparation. */
static void set_base_pull(gl_workspace *ws)
{
    double *g = ws->base_factor;
    for (int p = 0; p < ws->n_base; p++) {
        const double *value = ws->base_value[p];
        double *pull = ws->base_pull[p];
        if (ws->order) {
            whiten(ws, value, 0, ws->n_pad, ws->white);
            whiten_back(ws, ws->white, 0, ws->n_pad, pull);
        } else {
            for (int i = 0; i < ws->n_pad; i += VW) vstore(pull + i, vload(ws->w + i) * vload(value + i));
        }
        for (int q = 0; q <= p; q++) {
            vd sum = vset(0.0);
            for (int i = 0; i < ws->n_pad; i += VW) sum += vload(pull + i) * vload(ws->base_value[q] + i);
            g[p * BASE_TERMS + q] = vsum(sum);
        }
    }
    ws->n_base = factor_terms(g, ws->n_base);
}

/* v += B^T Q x over [lo, hi). */
INLINE void add_base_products(const gl_workspace *ws, const double *x, int lo, int hi, double *v)
{
    for (int p = 0; p < ws->n_base; p++) {
        const double *pull = ws->base_pull[p];
        vd sum = vset(0.0);
        for (int i = lo; i < hi; i += VW) sum += vload(pull + i) * vload(x + i);
        v[p] += vsum(sum);
    }
}

/* Fits the baseline to x and subtracts it. c are its coefficients. */
static void remove_own_baseline(gl_workspace *ws, double *x, double *c)
{
    memset(c, 0, BASE_TERMS * sizeof *c);
    add_base_products(ws, x, 0, ws->n_pad, c);
    solve_terms(ws->base_factor, ws->n_base, c);
    subtract_baseline(ws, c, 0, ws->n_pad, x);
    ws->work += ws->n;
}

/* Fits the baseline to the residual of the model and subtracts it. */
static void level_residual(gl_workspace *ws)
{
    double c[BASE_TERMS];
    if (!ws->n_base) return;
    remove_own_baseline(ws, ws->residual, c);
    for (int p = 0; p < ws->n_base; p++) ws->base_coef[p] += c[p];
}

/* Sets the products of the channels outside [lo, hi), which a fit of these does not change. */
static void set_base_rest(gl_workspace *ws, int lo, int hi)
{
    memset(ws->base_rest, 0, sizeof ws->base_rest);
    add_base_products(ws, ws->residual, 0, lo, ws->base_rest);
    add_base_products(ws, ws->residual, hi, ws->n_pad, ws->base_rest);
}

/* Fall of chi-square with the baseline of the trial. */
static double fall_with_baseline(gl_workspace *ws, int lo, int hi)
{
    double v[BASE_TERMS], fall = 0.0;
    memcpy(v, ws->base_rest, sizeof v);
    add_base_products(ws, ws->trial, lo, hi, v);
    solve_forward(ws->base_factor, ws->n_base, v);
    for (int p = 0; p < ws->n_base; p++) fall += v[p] * v[p];
    ws->work += hi - lo;
    return fall;
}

/* The coefficients of the baseline of the trial. */
static void baseline_of_trial(const gl_workspace *ws, int lo, int hi, double *c)
{
    memcpy(c, ws->base_rest, BASE_TERMS * sizeof *c);
    add_base_products(ws, ws->trial, lo, hi, c);
    solve_terms(ws->base_factor, ws->n_base, c);
}

/* The trial without its baseline: what the gradient is computed from. */
static const double *levelled_trial(gl_workspace *ws, int lo, int hi)
{
    double c[BASE_TERMS];
    if (!ws->n_base) return ws->trial;
    baseline_of_trial(ws, lo, hi, c);
    memcpy(ws->levelled + lo, ws->trial + lo, (size_t)(hi - lo) * sizeof(double));
    subtract_baseline(ws, c, lo, hi, ws->levelled);
    return ws->levelled;
}

/* Takes the part that the baseline can imitate from the normal matrix of the k components last evaluated. It has no
 * zeros any more. */
static void project_normal(gl_workspace *ws, const Comp *c, int k)
{
    int n = 3 * k, terms = ws->n_base;
    if (!terms) return;
    for (int j = 0; j < k; j++) {
        double u = c[j].a / c[j].s, *cross = ws->base_cross + 3 * BASE_TERMS * (size_t)j;
        for (int p = 0; p < terms; p++) {
            Moments m = pull_moments(c[j], ws->window[j], ws->bells + (size_t)j * ws->n_pad, ws->base_pull[p]);
            cross[p] = m.c[0];
            cross[BASE_TERMS + p] = u * m.c[1];
            cross[2 * BASE_TERMS + p] = u * m.c[2];
        }
        for (int i = 0; i < 3; i++) solve_forward(ws->base_factor, terms, cross + i * BASE_TERMS);
        ws->work += terms * (ws->window[j].hi - ws->window[j].lo);
    }
    for (int i = 0; i < n; i++) {
        double *row = ws->normal + (size_t)i * n, own = row[i];
        const double *left = ws->base_cross + (size_t)i * BASE_TERMS;
        memset(row, 0, (size_t)ws->envelope[i] * sizeof *row);
        ws->envelope[i] = 0;
        for (int j = 0; j <= i; j++) {
            const double *right = ws->base_cross + (size_t)j * BASE_TERMS;
            for (int p = 0; p < terms; p++) row[j] -= left[p] * right[p];
        }
        if (!(row[i] > BASE_SHARE_LEAST * own)) row[i] = 0.0; /* freeze_and_scale() freezes it */
    }
    ws->work += FACTOR_WORK * terms * n * n;
}

/* Share of the signal-to-noise of a component that the baseline cannot imitate. */
static double share_beside_baseline(gl_workspace *ws, Comp c)
{
    double v[BASE_TERMS], square = 0.0;
    Window win = window_of(c, 0, ws->n_pad);
    memset(ws->trial + win.lo, 0, (size_t)(win.hi - win.lo) * sizeof(double));
    bell_add(c, 0.0, win, ws->bells, ws->trial);
    vd squares = vset(0.0);
    for (int i = win.lo; i < win.hi; i += VW) squares += vload(ws->w + i) * vload(ws->bells + i) * vload(ws->bells + i);
    memset(v, 0, sizeof v);
    add_base_products(ws, ws->bells, win.lo, win.hi, v);
    solve_forward(ws->base_factor, ws->n_base, v);
    for (int p = 0; p < ws->n_base; p++) square += v[p] * v[p];
    ws->work += (1.0 + ws->n_base) * (win.hi - win.lo);
    double power = vsum(squares);
    if (ws->order) {
        vd mean = vset(0.0);
        for (int i = win.lo; i < win.hi; i += VW) mean += vload(ws->bells + i) * vload(ws->bells + i);
        power = bell_power(ws, c.s) * (vsum(mean) > 0.0 ? power / vsum(mean) : 0.0);
    }
    return power > square ? sqrt(1.0 - square / power) : 0.0;
}

/* The coefficients in powers of the channel number, in units of the noise. */
static void channel_coefficients(const gl_workspace *ws, double *out)
{
    double shift = -ws->base_first * ws->base_step - 1.0; /* place = step * channel + shift */
    memset(out, 0, BASE_TERMS * sizeof *out);
    for (int p = BASE_TERMS - 1; p >= 0; p--) { /* Horner's scheme with polynomials */
        for (int q = BASE_TERMS - 1; q > 0; q--) out[q] = out[q] * shift + out[q - 1] * ws->base_step;
        out[0] = out[0] * shift + ws->base_start[p] + ws->base_coef[p];
    }
}
#endif
