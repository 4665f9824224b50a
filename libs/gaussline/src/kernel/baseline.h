/* The baseline: what is left of a spectrum that is neither a line nor noise. A component is tested against it. */
#ifndef BASELINE_H
#define BASELINE_H

#include <math.h>
#include <string.h>

#include "bell.h"
#include "correlation.h"
#include "polynomial.h"
#include "scales.h"
#include "solver.h"
#include "workspace.h"

/* Least signal-to-noise of a component beside a constant and a slope, as a fraction of mf_snr_min. */
#define BASELINE_SNR 0.85
/* The mean square of the negative responses counts as a baseline above what noise has, by this many of its standard
 * deviations. */
#define UNREST_MARGIN 0.3
/* Width, in widths of the component, of an independent stretch of the smoothed residual: the integral of its squared
 * correlation. */
#define INDEPENDENT_WIDTHS 2.5
/* Variance of twice the squared negative part of a unit normal. */
#define HALF_SQUARE_VARIANCE 5.0

/* A constant and a slope from -1 to 1 over the spectrum, times the inverse covariance of the noise. */
static void set_basis(gl_workspace *ws)
{
    double *constant = ws->base, *slope = ws->trial, step = ws->n > 1 ? 2.0 / (ws->n - 1) : 0.0;
    for (int i = 0; i < ws->n_pad; i++) {
        constant[i] = i < ws->n ? 1.0 : 0.0;
        slope[i] = i < ws->n ? i * step - 1.0 : 0.0;
    }
    if (ws->order) {
        whiten(ws, constant, 0, ws->n_pad, ws->white);
        whiten_back(ws, ws->white, 0, ws->n_pad, ws->level);
        whiten(ws, slope, 0, ws->n_pad, ws->white);
        whiten_back(ws, ws->white, 0, ws->n_pad, ws->tilt);
    } else {
        for (int i = 0; i < ws->n_pad; i += VW) {
            vstore(ws->level + i, vload(ws->w + i) * vload(constant + i));
            vstore(ws->tilt + i, vload(ws->w + i) * vload(slope + i));
        }
    }
    vd level = vset(0.0), cross = vset(0.0), tilt = vset(0.0);
    for (int i = 0; i < ws->n_pad; i += VW) {
        level += vload(ws->level + i) * vload(constant + i);
        cross += vload(ws->tilt + i) * vload(constant + i);
        tilt += vload(ws->tilt + i) * vload(slope + i);
    }
    ws->level_power = vsum(level);
    ws->cross_power = vsum(cross);
    ws->tilt_power = vsum(tilt);
    ws->has_basis = 1;
}

/* A linear function of the channel: a constant and a slope. */
typedef struct {
    double level, tilt;
} Line;

/* The line whose products with the constant and the slope of the basis are these: the fit of a line to x, if they are
 * its products with x. */
INLINE Line solve_line(const gl_workspace *ws, Line product)
{
    double determinant = ws->level_power * ws->tilt_power - ws->cross_power * ws->cross_power;
    if (!(determinant > 0.0)) return (Line){0.0, 0.0};
    return (Line){(ws->tilt_power * product.level - ws->cross_power * product.tilt) / determinant,
                  (ws->level_power * product.tilt - ws->cross_power * product.level) / determinant};
}

/* Products of x with the basis over [lo, hi). */
INLINE Line line_products(const gl_workspace *ws, const double *x, int lo, int hi)
{
    vd level = vset(0.0), tilt = vset(0.0);
    for (int i = lo; i < hi; i += VW) {
        level += vload(ws->level + i) * vload(x + i);
        tilt += vload(ws->tilt + i) * vload(x + i);
    }
    return (Line){vsum(level), vsum(tilt)};
}

/* Whether a component has to be tested: it is so low that a baseline could imitate it. */
INLINE int is_low(const gl_workspace *ws, Comp c) { return c.a * local_sensitivity(ws, c) < ws->params->snr_min; }

/* The scale whose width is the nearest one, of those of the search. */
static int nearest_scale(const gl_workspace *ws, double width)
{
    int j = 0;
    while (j + 1 < ws->scales_max && ws->scale_sigma[j] * ws->scale_sigma[j + 1] <= width * width) j++;
    return j;
}

/* Mean square of the negative matched-filter responses at a scale, which is one for noise. All low components but c are
 * taken for baseline, so that the crests of a ripple do not justify each other, and a line is taken out. */
static double unrest_at(gl_workspace *ws, Comp c, int scale)
{
    double *x = ws->trial, *from = ws->depth_rows + ws->scale_pad, *to = from + ws->scale_stride;
    memcpy(x, ws->residual, (size_t)ws->n_pad * sizeof(double));
    for (int i = 0; i < ws->n_comp; i++) {
        Comp other = ws->comp[i];
        if (!is_low(ws, other) || (other.mu == c.mu && other.s == c.s && other.a == c.a)) continue;
        Window win = window_of(other, 0, ws->n_pad);
        bell_add(other, other.a, win, ws->bells, x);
        ws->work += win.hi - win.lo;
    }
    Line trend = solve_line(ws, line_products(ws, x, 0, ws->n_pad));
    if (ws->order) set_pull(ws, x);
    for (int i = 0; i < ws->n_pad; i++) {
        double pull = ws->order ? ws->pull[i] : ws->w[i] * x[i];
        pull -= trend.level * ws->level[i] + trend.tilt * ws->tilt[i];
        from[i] = ws->root_weight[i] > 0.0 ? pull / ws->root_weight[i] : 0.0;
    }
    for (int j = 0; j < scale; j++) {
        for (int i = 0; i < ws->n_pad; i += VW) vstore(to + i, smooth_at(from + i, 1 << j));
        double *t = from;
        from = to;
        to = t;
    }
    vd square = vset(0.0), zero = vset(0.0);
    for (int i = 0; i < ws->n_pad; i += VW) {
        vd t = smooth_at(from + i, 1 << scale);
        vd low = (vd)((vi)t & (t < zero));
        square += low * low;
    }
    ws->work += (scale + 4.0) * ws->n;
    double norm = ws->order ? ws->search_inv_norm[scale] : ws->scale_inv_norm[scale];
    return 2.0 * vsum(square) * norm * norm / ws->n_valid;
}

/* Waves that are compared with the low components: their least and largest number of periods in the spectrum, the step
 * between them, and the least width of a component, in spectra, that such a wave could imitate. */
#define WAVE_FIRST 1.4
#define WAVE_LAST 4.0
#define WAVE_STEP 0.25
#define WAVE_WIDTH (1.0 / 32.0)
/* The low components stay if chi-square falls by more than this share of its fall with the best wave. */
#define WAVE_SHARE 0.9

/* Fall of chi-square if a line is fitted to x. */
INLINE double fall_of_line(const gl_workspace *ws, const double *x)
{
    Line products = line_products(ws, x, 0, ws->n_pad), fit = solve_line(ws, products);
    return fit.level * products.level + fit.tilt * products.tilt;
}

/* Largest fall of chi-square if a wave is added to the line. pull is the inverse covariance times x, and fit the line
 * of x. The noise is taken as white at these low frequencies. */
static double fall_of_wave(gl_workspace *ws, const double *pull, Line fit)
{
    double best = 0.0, power = ws->order ? ws->zero_frequency : 1.0;
    for (double periods = WAVE_FIRST; periods <= WAVE_LAST; periods += WAVE_STEP) {
        double angle = 6.283185307179586 * periods / ws->n;
        vd c, s, turn_c = vset(cos(VW * angle)), turn_s = vset(sin(VW * angle)), zero = vset(0.0);
        for (int l = 0; l < VW; l++) {
            c[l] = cos(l * angle);
            s[l] = sin(l * angle);
        }
        vd pc = zero, ps = zero, lc = zero, ls = zero, tc = zero, ts = zero, cc = zero, cs = zero, ss = zero;
        for (int i = 0; i < ws->n_pad; i += VW) {
            vd u = vload(pull + i), l = vload(ws->level + i), t = vload(ws->tilt + i), w = vload(ws->w + i);
            pc += u * c;
            ps += u * s;
            lc += l * c;
            ls += l * s;
            tc += t * c;
            ts += t * s;
            cc += w * c * c;
            cs += w * c * s;
            ss += w * s * s;
            vd next = c * turn_c - s * turn_s;
            s = s * turn_c + c * turn_s;
            c = next;
        }
        Line of_c = {vsum(lc), vsum(tc)}, of_s = {vsum(ls), vsum(ts)};
        Line fit_c = solve_line(ws, of_c), fit_s = solve_line(ws, of_s);
        double p = vsum(pc) - fit.level * of_c.level - fit.tilt * of_c.tilt;
        double q = vsum(ps) - fit.level * of_s.level - fit.tilt * of_s.tilt;
        double a = power * vsum(cc) - fit_c.level * of_c.level - fit_c.tilt * of_c.tilt;
        double b = power * vsum(cs) - fit_c.level * of_s.level - fit_c.tilt * of_s.tilt;
        double d = power * vsum(ss) - fit_s.level * of_s.level - fit_s.tilt * of_s.tilt;
        double determinant = a * d - b * b;
        if (determinant > 1e-6 * a * d) best = fmax(best, (d * p * p - 2.0 * b * p * q + a * q * q) / determinant);
    }
    ws->work += 2.0 * (WAVE_LAST - WAVE_FIRST) / WAVE_STEP * ws->n;
    return best;
}

/* Whether a wave explains the spectrum better than all low components of the model. */
static int is_wave(gl_workspace *ws)
{
    double *x = ws->trial, after, before, c[BASE_TERMS];
    memcpy(x, ws->residual, (size_t)ws->n_pad * sizeof(double));
    for (int i = 0; i < ws->n_comp; i++) {
        Comp low = ws->comp[i];
        if (is_low(ws, low)) bell_add(low, low.a, window_of(low, 0, ws->n_pad), ws->bells, x);
    }
    if (ws->n_base) remove_own_baseline(ws, x, c);
    if (ws->order) {
        after = whiten(ws, ws->residual, 0, ws->n_pad, ws->white);
        before = whiten(ws, x, 0, ws->n_pad, ws->white);
        whiten_back(ws, ws->white, 0, ws->n_pad, ws->pull);
    } else {
        after = weighted_square(ws->w, ws->residual, 0, ws->n_pad);
        before = weighted_square(ws->w, x, 0, ws->n_pad);
        for (int i = 0; i < ws->n_pad; i += VW) vstore(ws->pull + i, vload(ws->w + i) * vload(x + i));
    }
    double fall = before - fall_of_line(ws, x) - after + fall_of_line(ws, ws->residual);
    double wave = fall_of_wave(ws, ws->pull, solve_line(ws, line_products(ws, x, 0, ws->n_pad)));
    return WAVE_SHARE * wave > fall;
}

/* Whether component c of the model is significant against noise and baseline: the S/N of its amplitude in a common fit
 * with a constant and a slope, compared with the negative responses of the rest of the spectrum at its width. True if a
 * limit ends the spectrum, whose flag says so. */
static int stands_out(gl_workspace *ws, Comp c)
{
    if (out_of_budget_now(ws)) return 1;
    if (!ws->has_basis) set_basis(ws);
    int scale = nearest_scale(ws, c.s);
    double independent = ws->n_valid / (INDEPENDENT_WIDTHS * c.s);
    double unrest = unrest_at(ws, c, scale) - UNREST_MARGIN * sqrt(HALF_SQUARE_VARIANCE / independent);
    Window win = window_of(c, 0, ws->n_pad);
    memset(ws->trial + win.lo, 0, (size_t)(win.hi - win.lo) * sizeof(double));
    bell_add(c, 0.0, win, ws->bells, ws->trial);
    if (ws->order) set_pull(ws, ws->residual);
    vd squares = vset(0.0), remains = vset(0.0);
    for (int i = win.lo; i < win.hi; i += VW) {
        vd g = vload(ws->bells + i), w = vload(ws->w + i);
        squares += w * g * g;
        remains += g * (ws->order ? vload(ws->pull + i) : w * vload(ws->residual + i));
    }
    double local = local_sensitivity(ws, c);
    double power = ws->order ? local * local * bell_power(ws, c.s) : vsum(squares);
    Line bell = line_products(ws, ws->bells, win.lo, win.hi), fit = solve_line(ws, bell);
    Line rest = line_products(ws, ws->residual, 0, ws->n_pad);
    double own = power - fit.level * bell.level - fit.tilt * bell.tilt;
    if (!(own > 0.0)) return 0;
    double snr = (c.a * own + vsum(remains) - fit.level * rest.level - fit.tilt * rest.tilt) / sqrt(own);
    if (c.s > WAVE_WIDTH * ws->n && is_wave(ws)) return 0;
    return snr >= BASELINE_SNR * ws->mf_snr_min * sqrt(fmax(unrest, 1.0));
}
#endif
