/* The solver: least squares over the components of one cluster, with the rest of the model fixed. */
#ifndef SOLVER_H
#define SOLVER_H

#include <math.h>
#include <string.h>

#include "bell.h"
#include "correlation.h"
#include "linear.h"
#include "polynomial.h"
#include "workspace.h"

/* Largest change of a width in one step, as a factor, and of a mean, in widths. */
#define WIDTH_STEP 2.5
#define MEAN_STEP 2.0
/* Two components closer than this many summed widths are solved together. */
#define COUPLING 3.0
/* The same for the final solution and the covariance. */
#define FINAL_COUPLING 4.0
/* Iterations of one fit. */
#define FIT_ITERATIONS 40
/* Rows of a factorisation between two looks at the limits. */
#define FACTOR_ROWS 96
/* Dampings tried for one step. */
#define FIT_ATTEMPTS 12
/* Fits of one cluster, each with a wider buffer, when its components outgrow the first one. */
#define FIT_ROUNDS 3
/* Iterations with a width at its lower bound after which a fit is given up: a noise spike. */
#define SPIKE_ITERATIONS 3
/* Damping: at the start, its least value after a refused step, and its largest value at which a predicted fall of
 * chi-square may stop the fit. */
#define LAMBDA_START 1e-2
#define LAMBDA_RETRY 1e-3
#define LAMBDA_TRUSTED 0.1
/* Stop a fit at this predicted fall of chi-square: while searching, when trying a split, and for the final model. */
#define TOL_SEARCH 0.1
#define TOL_TRIAL 0.3
#define TOL_FINAL 1e-4
/* Newton's second-order term is used once a step lowers chi-square by less than this. Far from the minimum Gauss-Newton
 * alone is better: it widens a narrow first guess where Newton would converge to the nearest noise peak. */
#define NEWTON_FALL 5.0

INLINE void swap_trial(gl_workspace *ws)
{
    double *t = ws->trial;
    ws->trial = ws->other_trial;
    ws->other_trial = t;
    t = ws->white;
    ws->white = ws->other_white;
    ws->other_white = t;
}

/* Signal to noise of a unit amplitude: one, unless channels within a width of the mean are blank or noisier. */
static double local_sensitivity(const gl_workspace *ws, Comp c)
{
    if (ws->plain) return 1.0;
    int lo = (int)clamp(floor(c.mu - c.s), 0.0, ws->n - 1.0);
    int hi = (int)clamp(ceil(c.mu + c.s) + 1.0, lo + 1.0, ws->n);
    return sqrt((ws->weight_sum[hi] - ws->weight_sum[lo]) / (hi - lo));
}

/* Gradient and second-order block of component j from its sums. */
INLINE void set_gradient(gl_workspace *ws, Comp c, Moments m, int j)
{
    double u = c.a / c.s, v = 1.0 / c.s, t = u * v;
    double *g = ws->gradient + 3 * j, *second = ws->second + 6 * j;
    g[0] = m.c[0];
    g[1] = u * m.c[1];
    g[2] = u * m.c[2];
    second[0] = 0.0;
    second[1] = v * m.c[1];
    second[2] = t * (m.c[2] - m.c[0]);
    second[3] = v * m.c[2];
    second[4] = t * (m.c[3] - 2.0 * m.c[1]);
    second[5] = t * (m.c[4] - 3.0 * m.c[2]);
}

/* trial = base - model of the cluster over [lo, hi). Keeps bells and windows. Returns chi-square; infinite if a limit
 * ends the spectrum before the trial is complete. */
static double evaluate(gl_workspace *ws, const Comp *c, int k, int lo, int hi)
{
    memcpy(ws->trial + lo, ws->base + lo, (size_t)(hi - lo) * sizeof(double));
    for (int j = 0; j < k; j++) {
        if (out_of_budget_now(ws)) return INFINITY;
        ws->window[j] = window_of(c[j], lo, hi);
        bell_add(c[j], -c[j].a, ws->window[j], ws->bells + (size_t)j * ws->n_pad, ws->trial);
        ws->work += ws->window[j].hi - ws->window[j].lo;
    }
    ws->work += hi - lo;
    double fall = ws->n_base ? fall_with_baseline(ws, lo, hi) : 0.0;
    if (ws->order) {
        int from = lo ? lo + WHITENING_REACH : 0; /* the first channels would need channels before lo */
        ws->work += hi - lo;
        return whiten(ws, ws->trial, from, hi, ws->white) - fall;
    }
    return weighted_square(ws->w, ws->trial, lo, hi) - fall;
}

/* ws->pull over [lo, hi) from the whitened residual of the components last evaluated. */
static void pull_of_fit(gl_workspace *ws, int lo, int hi)
{
    if (lo) memset(ws->white + lo, 0, WHITENING_REACH * sizeof(double));
    memset(ws->white + hi, 0, WHITENING_REACH * sizeof(double));
    whiten_back(ws, ws->white, lo, hi, ws->pull);
    if (!ws->n_base) return;
    double c[BASE_TERMS];
    baseline_of_trial(ws, lo, hi, c);
    for (int p = 0; p < ws->n_base; p++)
        for (int i = lo; i < hi; i += VW)
            vstore(ws->pull + i, vload(ws->pull + i) - vset(c[p]) * vload(ws->base_pull[p] + i));
}

/* Normal matrix, gradient and second-order blocks under correlated noise. The matrix is that of a spectrum without
 * edge or blank, times the local weights; the gradient is exact. Returns -1 if a limit ends the spectrum before. */
static int assemble_correlated(gl_workspace *ws, const Comp *c, int k, int lo, int hi)
{
    int n = 3 * k;
    pull_of_fit(ws, lo, hi);
    for (int j = 0; j < k; j++) {
        if (out_of_budget_now(ws)) return -1;
        Window win = ws->window[j];
        Moments m = pull_moments(c[j], win, ws->bells + (size_t)j * ws->n_pad, ws->pull);
        set_gradient(ws, c[j], m, j);
        double local = local_sensitivity(ws, c[j]), block[3][3];
        ws->scratch[j] = local;
        product_block(ws, c[j], c[j], block);
        for (int p = 0; p < 3; p++)
            for (int q = 0; q <= p; q++) ws->normal[(size_t)(3 * j + p) * n + 3 * j + q] = local * local * block[p][q];
        ws->envelope[3 * j] = 3 * j;
        for (int i = 0; i < j; i++) {
            int apart = win.lo >= ws->window[i].hi || win.hi <= ws->window[i].lo;
            if (apart && ws->envelope[3 * j] == 3 * j) continue;
            if (apart) memset(block, 0, sizeof block);
            else product_block(ws, c[j], c[i], block);
            if (ws->envelope[3 * j] == 3 * j) ws->envelope[3 * j] = 3 * i;
            for (int p = 0; p < 3; p++)
                for (int q = 0; q < 3; q++)
                    ws->normal[(size_t)(3 * j + p) * n + 3 * i + q] = local * ws->scratch[i] * block[p][q];
        }
        ws->envelope[3 * j + 1] = ws->envelope[3 * j + 2] = ws->envelope[3 * j];
        ws->work += win.hi - win.lo;
    }
    return 0;
}

/* Normal matrix, gradient and second-order blocks at the components last evaluated. Returns -1 if a limit ends the
 * spectrum before. */
static int assemble(gl_workspace *ws, const Comp *c, int k, int lo, int hi)
{
    int n = 3 * k;
    const double *left = levelled_trial(ws, lo, hi);
    for (int j = 0; j < k; j++) {
        Window win = ws->window[j];
        Moments m = moments_of(c[j], win, ws->w, ws->bells + (size_t)j * ws->n_pad, left);
        ws->moments[j] = m;
        double u = c[j].a / c[j].s;
        double *row = ws->normal + (size_t)(3 * j) * n + 3 * j;
        set_gradient(ws, c[j], m, j);
        row[0] = m.a[0];
        row[n] = u * m.a[1];
        row[n + 1] = u * u * m.a[2];
        row[2 * n] = u * m.a[2];
        row[2 * n + 1] = u * u * m.a[3];
        row[2 * n + 2] = u * u * m.a[4];
        ws->envelope[3 * j] = 3 * j;
        for (int i = 0; i < j; i++) {
            Window both = {win.lo > ws->window[i].lo ? win.lo : ws->window[i].lo,
                           win.hi < ws->window[i].hi ? win.hi : ws->window[i].hi};
            if (both.lo >= both.hi) {
                if (ws->envelope[3 * j] < 3 * j)
                    for (int p = 0; p < 3; p++) memset(ws->normal + (size_t)(3 * j + p) * n + 3 * i, 0, 24);
                continue;
            }
            if (out_of_budget_now(ws)) return -1;
            if (ws->envelope[3 * j] == 3 * j) ws->envelope[3 * j] = 3 * i;
            double block[3][3];
            const double *gi = ws->bells + (size_t)i * ws->n_pad, *gj = ws->bells + (size_t)j * ws->n_pad;
            int flip = c[i].s < c[j].s;
            if (flip) cross_block(c[i], c[j], both, ws->w, gi, gj, block);
            else cross_block(c[j], c[i], both, ws->w, gj, gi, block);
            for (int p = 0; p < 3; p++)
                for (int q = 0; q < 3; q++)
                    ws->normal[(size_t)(3 * j + p) * n + 3 * i + q] = flip ? block[q][p] : block[p][q];
            ws->work += both.hi - both.lo;
        }
        ws->envelope[3 * j + 1] = ws->envelope[3 * j + 2] = ws->envelope[3 * j];
        ws->work += 2 * (win.hi - win.lo);
    }
    return 0;
}

/* Factors the system. Returns -1 if it is not positive definite, or if a limit ends the spectrum before. */
static int factor(gl_workspace *ws, int n)
{
    for (int row = 0; row < n; row += FACTOR_ROWS) {
        if (row && out_of_budget(ws)) return -1;
        if (cholesky(ws->system, row, row + FACTOR_ROWS < n ? row + FACTOR_ROWS : n, n, ws->envelope) != 0) return -1;
    }
    return 0;
}

/* system = S (normal - use_second * second) S + damping, S the unit scaling of the normal matrix, frozen ones cut. */
SHORT_LOOPS static void build_system(gl_workspace *ws, int k, double damping, int use_second)
{
    int n = 3 * k;
    for (int i = 0; i < n; i++) {
        double *out = ws->system + (size_t)i * n;
        const double *in = ws->normal + (size_t)i * n;
        double si = ws->scale[i];
        for (int j = ws->envelope[i]; j <= i; j++) out[j] = in[j] * si * ws->scale[j];
        if (use_second) {
            int b = i / 3 * 3, p = i - b;
            const double *second = ws->second + 2 * b + p * (p + 1) / 2;
            for (int q = 0; q <= p; q++) out[b + q] -= second[q] * si * ws->scale[b + q];
        }
        out[i] += ws->frozen[i] ? 1.0 : damping;
    }
}

/* Fall of chi-square that the quadratic model promises for the step, without the damping. */
SHORT_LOOPS static double predicted_fall(gl_workspace *ws, int k, int use_second)
{
    int n = 3 * k;
    double linear = 0.0, quadratic = 0.0;
    for (int i = 0; i < n; i++) {
        const double *in = ws->normal + (size_t)i * n;
        double x = ws->step[i], s = 0.5 * in[i] * x;
        linear += ws->gradient[i] * x;
        for (int j = ws->envelope[i]; j < i; j++) s += in[j] * ws->step[j];
        if (use_second) {
            int b = i / 3 * 3, p = i - b;
            const double *second = ws->second + 2 * b + p * (p + 1) / 2;
            for (int q = 0; q < p; q++) s -= second[q] * ws->step[b + q];
            s -= 0.5 * second[p] * x;
        }
        quadratic += 2.0 * x * s;
    }
    return 2.0 * linear - quadratic;
}

/* The component with every parameter moved to its bound if it is beyond it. */
INLINE Comp within_bounds(const gl_workspace *ws, Comp c)
{
    return (Comp){clamp(c.a, 0.0, AMPLITUDE_MAX), clamp(c.mu, 0.0, ws->n - 1.0), clamp(c.s, WIDTH_MIN, 0.5 * ws->n)};
}

INLINE Comp bounded_step(const gl_workspace *ws, Comp c, const double *d)
{
    double mean = clamp(d[1], -MEAN_STEP * c.s, MEAN_STEP * c.s);
    double width = clamp(c.s + d[2], c.s / WIDTH_STEP, c.s * WIDTH_STEP);
    return within_bounds(ws, (Comp){c.a + d[0], c.mu + mean, width});
}

INLINE int at_bound(const gl_workspace *ws, Comp c)
{
    return c.s <= WIDTH_MIN || c.s >= 0.5 * ws->n || c.mu <= 0.0 || c.mu >= ws->n - 1.0;
}

/* Freeze the parameters on a bound whose gradient points outwards, and set the scaling. */
static void freeze_and_scale(gl_workspace *ws, const Comp *c, int k)
{
    int n = 3 * k;
    for (int j = 0; j < k; j++) {
        unsigned char *f = ws->frozen + 3 * j;
        const double *g = ws->gradient + 3 * j;
        f[0] = c[j].a <= 0.0 && g[0] <= 0.0;
        f[1] = (c[j].mu <= 0.0 && g[1] <= 0.0) || (c[j].mu >= ws->n - 1.0 && g[1] >= 0.0);
        f[2] = (c[j].s <= WIDTH_MIN && g[2] <= 0.0) || (c[j].s >= 0.5 * ws->n && g[2] >= 0.0);
    }
    for (int i = 0; i < n; i++) {
        double d = ws->normal[(size_t)i * n + i];
        if (!(d > 1e-200)) ws->frozen[i] = 1;
        ws->scale[i] = ws->frozen[i] ? 0.0 : 1.0 / sqrt(d);
    }
}

/* Sort by mean, so that the envelope of the normal matrix is small. */
static void sort_by_mean(const gl_workspace *ws, int *idx, int k)
{
    for (int i = 1; i < k; i++) {
        int v = idx[i], j = i;
        for (; j > 0 && ws->comp[idx[j - 1]].mu > ws->comp[v].mu; j--) idx[j] = idx[j - 1];
        idx[j] = v;
    }
}

INLINE int all_finite(const double *x, int n)
{
    double zero = 0.0;
    for (int i = 0; i < n; i++) zero += x[i] - x[i];
    return zero == 0.0;
}

/* Minimise chi-square over the k components members[] of the model, with the others fixed. Levenberg-Marquardt with the
 * exact Newton matrix; with Gauss-Newton's far from the minimum, or if Newton's is not positive definite. Sets
 * ws->unconverged of the members. A step to a number that is not finite is refused. */
static void fit_cluster(gl_workspace *ws, const int *members, int k, double tolerance)
{
    int n = 3 * k;
    int *idx = ws->member;
    memmove(idx, members, (size_t)k * sizeof *idx);
    sort_by_mean(ws, idx, k);
    for (int j = 0; j < k; j++) ws->unconverged[idx[j]] = 1;
    Comp *now = ws->params_now, *next = ws->params_try;
    int converged = 0;
    for (int round = 0; round < FIT_ROUNDS; round++) {
        int lo = ws->n_pad, hi = 0;
        for (int j = 0; j < k; j++) {
            now[j] = ws->comp[idx[j]];
            Comp wide = now[j];
            wide.s = clamp(1.5 * wide.s + 1.0, WIDTH_MIN, 0.5 * ws->n);
            Window win = window_of(wide, 0, ws->n_pad);
            lo = win.lo < lo ? win.lo : lo;
            hi = win.hi > hi ? win.hi : hi;
        }
        if (ws->order) { /* room for the whitening at either end */
            lo = lo > 2 * WHITENING_REACH ? lo - 2 * WHITENING_REACH : 0;
            hi = hi < ws->n_pad - WHITENING_REACH ? hi + WHITENING_REACH : ws->n_pad;
        }
        memcpy(ws->base + lo, ws->residual + lo, (size_t)(hi - lo) * sizeof(double));
        for (int j = 0; j < k; j++) {
            Window win = window_of(now[j], 0, ws->n_pad);
            bell_add(now[j], now[j].a, win, ws->bells, ws->base);
        }
        if (ws->n_base) set_base_rest(ws, lo, hi);
        double chi2 = evaluate(ws, now, k, lo, hi), lambda = LAMBDA_START;
        if (!isfinite(chi2)) { /* the model stays as it is */
            ws->not_finite |= !is_ended(ws);
            return;
        }
        int clipped = 0, stuck_at_bound = 0, near = tolerance <= TOL_FINAL;
        converged = 0;
        for (int it = 0; it < FIT_ITERATIONS && !converged; it++) {
            if (out_of_budget(ws)) break;
            if ((ws->order ? assemble_correlated(ws, now, k, lo, hi) : assemble(ws, now, k, lo, hi)) != 0) break;
            project_normal(ws, now, k);
            freeze_and_scale(ws, now, k);
            int done = 0;
            double grow = 4.0;
            for (int attempt = 0; attempt < FIT_ATTEMPTS && !done; attempt++) {
                if (out_of_budget_now(ws)) break;
                int newton = near;
                ws->work += FACTOR_WORK * n * n * n;
                build_system(ws, k, lambda, newton);
                if (factor(ws, n) != 0) {
                    newton = 0;
                    build_system(ws, k, fmax(lambda, LAMBDA_RETRY), 0);
                    if (factor(ws, n) != 0) {
                        lambda = fmax(10.0 * lambda, LAMBDA_START);
                        continue;
                    }
                }
                for (int i = 0; i < n; i++) ws->step[i] = ws->frozen[i] ? 0.0 : ws->gradient[i] * ws->scale[i];
                cholesky_solve(ws->system, n, n, ws->envelope, ws->step);
                for (int i = 0; i < n; i++) ws->step[i] *= ws->scale[i];
                if (!all_finite(ws->step, n)) {
                    ws->not_finite = 1;
                    break;
                }
                for (int j = 0; j < k; j++) {
                    double *d = ws->step + 3 * j;
                    next[j] = bounded_step(ws, now[j], d);
                    d[0] = next[j].a - now[j].a;
                    d[1] = next[j].mu - now[j].mu;
                    d[2] = next[j].s - now[j].s;
                }
                double promised = predicted_fall(ws, k, newton);
                if (promised < tolerance && lambda <= LAMBDA_TRUSTED) {
                    converged = done = 1;
                    /* the trial buffer still holds the residual of the accepted parameters */
                    break;
                }
                swap_trial(ws);
                double tried = evaluate(ws, next, k, lo, hi);
                if (tried < chi2) {
                    double gain = (chi2 - tried) / (promised > 1e-30 ? promised : 1e-30);
                    memcpy(now, next, (size_t)k * sizeof *now);
                    double fell = chi2 - tried;
                    chi2 = tried;
                    lambda = gain > 0.75 ? lambda * 0.1 : gain < 0.25 ? lambda * 4.0 : lambda;
                    if (lambda < 1e-9) lambda = 1e-9;
                    near = fell < NEWTON_FALL;
                    if (fell < tolerance && gain > 0.5) converged = 1;
                    done = 1;
                } else {
                    swap_trial(ws);
                    lambda = fmax(lambda, LAMBDA_RETRY) * grow;
                    grow *= 2.0;
                }
            }
            if (!done) converged = !is_ended(ws); /* no step lowers chi-square: this is the minimum within rounding errors */
            int bound = 0;
            for (int j = 0; j < k; j++) bound |= now[j].s <= WIDTH_MIN;
            stuck_at_bound = bound ? stuck_at_bound + 1 : 0;
            if (stuck_at_bound > SPIKE_ITERATIONS) break; /* a noise spike: the caller drops it */
        }
        for (int j = 0; j < k; j++) {
            Window full = window_of(now[j], 0, ws->n_pad), cut = window_of(now[j], lo, hi);
            clipped |= full.lo != cut.lo || full.hi != cut.hi;
        }
        for (int j = 0; j < k; j++) ws->comp[idx[j]] = now[j];
        if (!clipped) {
            memcpy(ws->residual + lo, ws->trial + lo, (size_t)(hi - lo) * sizeof(double));
            break;
        }
        /* the components outgrew the buffer: update the residual over their complete windows and continue */
        memcpy(ws->residual + lo, ws->base + lo, (size_t)(hi - lo) * sizeof(double));
        for (int j = 0; j < k; j++)
            bell_add(now[j], -now[j].a, window_of(now[j], 0, ws->n_pad), ws->bells, ws->residual);
    }
    for (int j = 0; j < k; j++) ws->unconverged[idx[j]] = !converged;
}
#endif
