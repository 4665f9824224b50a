/* Flags of what is no line on a flat zero: an offset, a slope, a ripple, negative features.
 *
 * The final residual is summed over blocks of channels, which are longer than the correlation of most noise. The noise
 * of the sums is estimated from the differences of neighbours, so that neither a baseline nor an error of the noise's
 * level or correlation changes it. A line, a wave and one more component of either sign then compete for what the model
 * leaves, and the line and the wave compete with the faint components of the model too. */
#ifndef FLATNESS_H
#define FLATNESS_H

#include <math.h>
#include <string.h>

#include "bell.h"
#include "correlation.h"
#include "noise.h"
#include "scales.h"
#include "solver.h"
#include "workspace.h"

/* Channels of a block, most blocks, and the least number of blocks with data: a shorter spectrum has none of the
 * flags. */
#define BLOCK_LEAST 8
#define BLOCKS_MOST 160
#define BLOCKS_LEAST 16
/* A block is used if this share of its channels has data. */
#define BLOCK_FILLED 0.5
/* Least variance of a sum in units of that of white noise. */
#define BLOCK_VARIANCE 0.7
/* Squares beyond this many times their median are left out: three standard deviations. The mean of the others is this
 * many variances, for a normal distribution. */
#define BLOCK_CLIP 19.78
#define BLOCK_CLIPPED 0.9733
/* Quick test: chi-square of the sums beyond their number. */
#define QUICK_EXCESS 12.0
/* Height, in units of the noise, below which a component may be an offset, a slope or a ripple. */
#define FAINT_HEIGHT 3.0
/* Least fall of chi-square with a line and with a wave. */
#define LINE_FALL 20.0
#define FLAG_WAVE_FALL 24.0
/* Share of the fall with the faint components that a line or a wave has to exceed. */
#define LINE_SHARE 0.8
#define FLAG_WAVE_SHARE 1.05
/* Least S/N of a slope beside a constant, and of the quartile or the median of the blocks. */
#define LINE_SNR 4.0
#define OFFSET_SNR 4.5
/* Lower quartile of a normal distribution, and the standard deviations of a quartile and of a median of n numbers,
 * times the root of n. */
#define QUARTILE 0.6745
#define QUARTILE_ERROR 1.3626
#define MEDIAN_ERROR 1.2533
/* An offset above zero is seen in every stretch of this fraction of the spectrum, with this S/N. */
#define OFFSET_STRETCHES 5
#define OFFSET_STRETCH_SNR 1.6
/* How many times what one more component explains a line or a wave has to explain. */
#define FEATURE_MARGIN 1.5
/* The waves: number of periods in the spectrum, its step up to WAVE_FINE and beyond, and the least blocks of one. */
#define RIPPLE_FIRST 2.0
#define RIPPLE_FINE 4.0
#define RIPPLE_STEP 0.25
#define RIPPLE_BLOCKS 4.0
/* S/N of a negative feature, and of one of few channels, the latter in units of mf_snr_min. */
#define NEGATIVE_SNR 5.5
#define NEGATIVE_NARROW 1.05
/* Scales of the matched filter that find negative features of less than a block. */
#define NARROW_SCALES 2

/* Sums of the blocks. */
typedef struct {
    int n;
    double z[BLOCKS_MOST]; /* sum of the weighted residual, in units of white noise */
    double s[BLOCKS_MOST]; /* what a constant of one adds to it; zero without data */
    double t[BLOCKS_MOST]; /* place in the spectrum, -1 to 1 */
} Blocks;

static void sum_blocks(const gl_workspace *ws, const double *x, Blocks *b)
{
    int size = (ws->n / BLOCKS_MOST + BLOCK_LEAST - 1) / BLOCK_LEAST * BLOCK_LEAST;
    size = size < BLOCK_LEAST ? BLOCK_LEAST : size;
    b->n = ws->n / size < BLOCKS_MOST ? ws->n / size : BLOCKS_MOST;
    for (int k = 0; k < b->n; k++) {
        vd sum = vset(0.0), weight = vset(0.0), filled = vset(0.0), zero = vset(0.0);
        for (int i = k * size; i < (k + 1) * size; i += VW) {
            vd w = vload(ws->w + i);
            sum += w * vload(x + i);
            weight += w;
            filled += (vd)((vi)vset(1.0) & (w > zero));
        }
        b->s[k] = ws->plain ? sqrt(size) : vsum(filled) >= BLOCK_FILLED * size ? sqrt(vsum(weight)) : 0.0;
        b->z[k] = b->s[k] > 0.0 ? vsum(sum) / b->s[k] : 0.0;
        b->t[k] = b->n > 1 ? 2.0 * k / (b->n - 1) - 1.0 : 0.0;
    }
}

/* Variance of the sums, from the mean square of the differences of neighbours, without those of features: these are
 * beyond BLOCK_CLIP times the median. Zero if too few blocks have data. */
static double block_variance(const Blocks *b)
{
    double squares[BLOCKS_MOST];
    int count = 0;
    for (int k = 0; k + 1 < b->n; k++) {
        double step = b->z[k + 1] - b->z[k];
        squares[count] = step * step;
        count += b->s[k] > 0.0 && b->s[k + 1] > 0.0;
    }
    if (count < BLOCKS_LEAST - 1) return 0.0;
    double limit = BLOCK_CLIP * select_kth(squares, count, count / 2), sum = 0.0;
    int kept = 0;
    for (int k = 0; k < count; k++) {
        sum += squares[k] <= limit ? squares[k] : 0.0;
        kept += squares[k] <= limit;
    }
    return fmax(sum / (2.0 * BLOCK_CLIPPED * kept), BLOCK_VARIANCE);
}

/* Products of a constant and a slope over the blocks, and their determinant. */
typedef struct {
    double ss, st, tt, determinant;
} LineBasis;

static LineBasis line_basis(const Blocks *b)
{
    LineBasis l = {0.0, 0.0, 0.0, 0.0};
    for (int k = 0; k < b->n; k++) {
        double s = b->s[k], t = s * b->t[k];
        l.ss += s * s;
        l.st += s * t;
        l.tt += t * t;
    }
    l.determinant = l.ss * l.tt - l.st * l.st;
    return l;
}

/* Fits constant and slope to z; returns the fall of chi-square. */
static double fit_line(const Blocks *b, const LineBasis *l, const double *z, double *constant, double *slope)
{
    double p = 0.0, q = 0.0;
    for (int k = 0; k < b->n; k++) {
        p += b->s[k] * z[k];
        q += b->s[k] * b->t[k] * z[k];
    }
    *constant = (l->tt * p - l->st * q) / l->determinant;
    *slope = (l->ss * q - l->st * p) / l->determinant;
    return *constant * p + *slope * q;
}

static void subtract_line(const Blocks *b, double constant, double slope, double *z)
{
    for (int k = 0; k < b->n; k++) z[k] -= b->s[k] * (constant + slope * b->t[k]);
}

/* Largest fall of chi-square with a wave, beside a line. z is without its line. */
static double fit_wave(const Blocks *b, const LineBasis *l, const double *z)
{
    double best = 0.0, step = RIPPLE_STEP;
    for (double periods = RIPPLE_FIRST; periods <= b->n / RIPPLE_BLOCKS; periods += step) {
        double angle = 6.283185307179586 * periods / b->n, turn_c = cos(angle), turn_s = sin(angle), c = 1.0, s = 0.0;
        double pc = 0.0, ps = 0.0, cc = 0.0, cs = 0.0, ss = 0.0, uc = 0.0, us = 0.0, tc = 0.0, ts = 0.0;
        for (int k = 0; k < b->n; k++) {
            double u = b->s[k], t = u * b->t[k], x = u * c, y = u * s;
            pc += z[k] * x;
            ps += z[k] * y;
            cc += x * x;
            cs += x * y;
            ss += y * y;
            uc += u * x;
            us += u * y;
            tc += t * x;
            ts += t * y;
            double next = c * turn_c - s * turn_s;
            s = s * turn_c + c * turn_s;
            c = next;
        }
        double inverse = 1.0 / l->determinant;
        cc -= (l->tt * uc * uc - 2.0 * l->st * uc * tc + l->ss * tc * tc) * inverse;
        cs -= (l->tt * uc * us - l->st * (uc * ts + us * tc) + l->ss * tc * ts) * inverse;
        ss -= (l->tt * us * us - 2.0 * l->st * us * ts + l->ss * ts * ts) * inverse;
        double determinant = cc * ss - cs * cs;
        if (determinant > 1e-6 * cc * ss)
            best = fmax(best, (ss * pc * pc - 2.0 * cs * pc * ps + cc * ps * ps) / determinant);
        if (periods >= RIPPLE_FINE) step = 2.0 * RIPPLE_STEP;
    }
    return best;
}

/* Lowest and highest sum of 1, 2, 4 ... neighbouring blocks over its noise of unit variance, up to a quarter of them. */
static void extreme_runs(const Blocks *b, const double *z, double *lowest, double *highest)
{
    double sums[BLOCKS_MOST];
    memcpy(sums, z, (size_t)b->n * sizeof *sums);
    *lowest = *highest = 0.0;
    for (int length = 1; length <= b->n / 4; length *= 2) {
        double low = 0.0, high = 0.0, unit = 1.0 / sqrt(length);
        for (int k = 0; k + length <= b->n; k++) {
            low = sums[k] < low ? sums[k] : low;
            high = sums[k] > high ? sums[k] : high;
        }
        *lowest = fmin(*lowest, low * unit);
        *highest = fmax(*highest, high * unit);
        for (int k = 0; k + 2 * length <= b->n; k++) sums[k] += sums[k + length];
    }
}

/* Lowest matched-filter response of the residual at the first scales. */
static double lowest_response(gl_workspace *ws)
{
    double *from = ws->depth_rows + ws->scale_pad, *to = from + ws->scale_stride;
    if (ws->order) set_pull(ws, ws->residual);
    for (int i = 0; i < ws->n_pad; i += VW) {
        vd root = vload(ws->root_weight + i), x = vload(ws->residual + i) * root;
        if (ws->order) x = vload(ws->pull + i) / (root + (vd)((vi)vset(1.0) & (root == vset(0.0))));
        vstore(from + i, x);
    }
    double lowest = 0.0;
    for (int j = 0; j < NARROW_SCALES && j < ws->scales_max; j++) {
        vd low = vset(0.0);
        for (int i = 0; i < ws->n_pad; i += VW) {
            vd smooth = smooth_at(from + i, 1 << j);
            vstore(to + i, smooth);
            vi under = smooth < low;
            low = (vd)(((vi)smooth & under) | ((vi)low & ~under));
        }
        double norm = ws->order ? ws->search_inv_norm[j] : ws->scale_inv_norm[j];
        for (int l = 0; l < VW; l++) lowest = fmin(lowest, low[l] * norm);
        double *t = from;
        from = to;
        to = t;
    }
    ws->work += ws->n;
    return lowest;
}

/* Whether the zero of the spectrum y is off. Lines are positive, so the median of the blocks is below zero only for an
 * offset below zero. For one above zero, the quartile is, and so is every stretch of a fifth of the spectrum, which
 * broad lines do not cover. */
static int has_offset(const gl_workspace *ws, double variance)
{
    Blocks raw;
    double values[BLOCKS_MOST], width = 0.0;
    int count = 0;
    sum_blocks(ws, ws->y, &raw);
    for (int k = 0; k < raw.n; k++) {
        if (!(raw.s[k] > 0.0)) continue;
        values[count++] = raw.z[k] / raw.s[k];
        width += 1.0 / (raw.s[k] * raw.s[k]);
    }
    double sigma = sqrt(variance * width / count), error = OFFSET_SNR * sigma / sqrt(count);
    double quartile = select_kth(values, count, count / 4), median = select_kth(values, count, count / 2);
    int is_high = quartile + QUARTILE * sigma > QUARTILE_ERROR * error, is_low = median < -MEDIAN_ERROR * error;
    if (!is_high) return is_low;
    int length = raw.n / OFFSET_STRETCHES;
    double sum = 0.0, least = OFFSET_STRETCH_SNR * sqrt(variance * length);
    for (int k = 0; k < raw.n; k++) {
        sum += raw.z[k] - (k >= length ? raw.z[k - length] : 0.0);
        if (k + 1 >= length && sum < least) return 0;
    }
    return 1;
}

static double square_of(const double *z, int n)
{
    double sum = 0.0;
    for (int k = 0; k < n; k++) sum += z[k] * z[k];
    return sum;
}

/* The flags of what the final model leaves, or takes for faint components. */
static uint32_t flatness_flags(gl_workspace *ws)
{
    Blocks left, all;
    sum_blocks(ws, ws->residual, &left);
    double variance = left.n >= BLOCKS_LEAST ? block_variance(&left) : 0.0;
    if (!(variance > 0.0) || is_ended(ws)) return 0;
    int faint = 0;
    for (int i = 0; i < ws->n_comp; i++) faint += ws->comp[i].a * local_sensitivity(ws, ws->comp[i]) < FAINT_HEIGHT;
    double narrow = lowest_response(ws), inverse = 1.0 / sqrt(variance), lowest, highest;
    int is_quick = narrow > -NEGATIVE_NARROW * ws->mf_snr_min;
    if (!ws->n_comp && is_quick && square_of(left.z, left.n) < (left.n + QUICK_EXCESS) * variance) return 0;
    if (faint) {
        memcpy(ws->trial, ws->residual, (size_t)ws->n_pad * sizeof(double));
        for (int i = 0; i < ws->n_comp; i++) {
            Comp c = ws->comp[i];
            if (c.a * local_sensitivity(ws, c) < FAINT_HEIGHT)
                bell_add(c, c.a, window_of(c, 0, ws->n_pad), ws->bells, ws->trial);
        }
        sum_blocks(ws, ws->trial, &all);
        variance = fmin(variance, block_variance(&all));
        inverse = 1.0 / sqrt(variance);
    } else {
        all = left;
    }
    for (int k = 0; k < left.n; k++) {
        left.z[k] *= inverse;
        all.z[k] *= inverse;
    }
    LineBasis l = line_basis(&left);
    if (!(l.determinant > 1e-6 * l.ss * l.tt)) return 0;
    uint32_t flags = has_offset(ws, variance) ? GL_OFFSET : 0;
    double constant, slope, other_constant, other_slope;
    double own = square_of(all.z, all.n) - square_of(left.z, left.n);
    double fall = fit_line(&all, &l, all.z, &constant, &slope);
    double left_fall = fit_line(&left, &l, left.z, &other_constant, &other_slope);
    extreme_runs(&left, left.z, &lowest, &highest);
    double feature = fmax(lowest * lowest, highest * highest);
    if (flags || (fall > LINE_FALL && fall > LINE_SHARE * fmax(own, 0.0) + FEATURE_MARGIN * feature)) {
        if (fabs(slope) * sqrt(l.determinant / l.ss) > LINE_SNR) flags |= GL_SLOPE;
        subtract_line(&left, other_constant, other_slope, left.z);
        extreme_runs(&left, left.z, &lowest, &highest);
        feature = fmax(lowest * lowest, highest * highest);
    }
    subtract_line(&all, constant, slope, all.z);
    double wave = fit_wave(&all, &l, all.z);
    own += left_fall - fall;
    if (wave > FLAG_WAVE_FALL && wave > FLAG_WAVE_SHARE * fmax(own, 0.0) + FEATURE_MARGIN * feature) flags |= GL_RIPPLE;
    else if (lowest < -NEGATIVE_SNR || (!is_quick && !flags)) flags |= GL_NEGATIVE;
    ws->work += 2.0 * ws->n;
    return flags;
}
#endif
