/* Flags of what is no line on a flat zero: an offset, a slope, a ripple, negative features.
 *
 * The final residual is summed over blocks of channels, which are longer than the correlation of most noise. The noise
 * of the sums is estimated from the differences of neighbours, so that a baseline or an error of the noise's level
 * hardly changes it. A line, a wave and one more component of either sign then compete for what the model leaves, and
 * the line and the wave compete with the faint components of the model too.
 *
 * Most spectra are flat, and cheap conditions show that: necessary ones for an offset and for a narrow dip, and the
 * chi-square of the sums for the rest. The full tests follow only where one of them fails. */
#ifndef FLATNESS_H
#define FLATNESS_H

#include <math.h>
#include <string.h>

#include "bell.h"
#include "correlation.h"
#include "noise.h"
#include "simd.h"
#include "solver.h"
#include "workspace.h"

/* Channels of a block, most blocks, and the least number of blocks with data: a shorter spectrum has none of the
 * flags. */
#define BLOCK_LEAST 8
#define BLOCKS_MOST 160
#define BLOCKS_LEAST 16
/* A block is used if this share of its channels has data. */
#define BLOCK_FILLED 0.5
/* Least variance of a sum in units of the expected one. */
#define BLOCK_VARIANCE 0.8
/* Differences beyond this many of their standard deviations are left out. The mean square of the others is this many
 * variances, for a normal distribution. */
#define BLOCK_CLIP 3.0
#define BLOCK_CLIPPED 0.9733
/* Excess of chi-square, of pairs of neighbouring sums, above which a line, a wave or a feature is looked for. */
#define QUICK_EXCESS 6.0
/* Channels between two whose noise is not correlated, and the largest correlation of neighbours. */
#define LAGS_FAR 10
#define LAG_MOST 0.95
/* Height, in units of the noise, and width, in blocks, of a component that may be an offset, a slope or a ripple. */
#define FAINT_HEIGHT 3.0
#define FAINT_WIDTH 0.5
/* Channels of the spectra for which thresholds were chosen. A spectrum of more channels has more chances of a false
 * alarm, whose probability falls as exp(-threshold / 2) for a threshold of chi-square: thresholds rise to keep their
 * number. */
#define REFERENCE_CHANNELS 424.0
/* Least fall of chi-square with a line and with a wave. */
#define LINE_FALL 18.0
#define FLAG_WAVE_FALL 17.5
/* Share of the fall with the faint components that a line or a wave has to exceed. */
#define LINE_SHARE 0.8
#define FLAG_WAVE_SHARE 1.05
/* Least S/N of a slope beside a constant, and of the quartile or the median of the blocks. */
#define LINE_SNR 4.0
#define OFFSET_SNR 3.2
/* Lower quartile of a normal distribution, and the standard deviations of a quartile and of a median of n numbers,
 * times the root of n. */
#define QUARTILE 0.6745
#define QUARTILE_ERROR 1.3626
#define MEDIAN_ERROR 1.2533
/* An offset above zero is seen in every stretch of this fraction of the spectrum, with this S/N. */
#define OFFSET_STRETCHES 5
#define OFFSET_STRETCH_SNR 0.5
/* It is also this share of the height of every component that is wider than this fraction of the spectrum: the wings
 * of a broad line cover a spectrum too. */
#define OFFSET_SHARE 0.2
#define OFFSET_WIDTH 0.05
/* A block is reached by a line that is this high there, in units of the noise. So many blocks that no line reaches show
 * an offset. Least channels for each component: of more components, some are the offset. */
#define OPEN_HEIGHT 0.1
#define OPEN_LEAST 8
#define OPEN_LINE 4.0
#define OPEN_CHANNELS 45
/* How many times what one more component explains a line and a wave have to explain. */
#define LINE_MARGIN 1.3
#define FLAG_WAVE_MARGIN 1.1
/* The waves: number of periods in the spectrum, its step up to RIPPLE_FINE and beyond, and the least blocks of one. */
#define RIPPLE_FIRST 2.0
#define RIPPLE_FINE 4.0
#define RIPPLE_STEP 0.25
#define RIPPLE_BLOCKS 4.0
/* S/N of a negative feature of blocks, and of one in a window of 4 or 8 channels at any place. It also has to be this
 * many times that of the highest positive one: a line that is no Gaussian leaves both. */
#define NEGATIVE_SNR 5.0
#define DIP_SNR 4.6
#define DIP_CONTRAST 1.2
#define DIP_CHANNELS 4
#define DIP_VARIANCE 1.0

/* Sums of the blocks. */
typedef struct {
    int n, size;
    double s[BLOCKS_MOST + VW]; /* what a constant of one adds to a sum; zero without data */
} Blocks;

/* Variances in units of those of white noise. */
typedef struct {
    double scale;             /* of a channel */
    double block, pair, slow; /* of a block; with the covariance of its neighbour; as part of a long sum */
    double window[2];         /* of DIP_CHANNELS channels and of twice as many */
    double dip_snr;           /* least S/N of a dip */
} BlockNoise;

static void set_blocks(const gl_workspace *ws, Blocks *b)
{
    int size = b->size = ((ws->n - 1) / BLOCKS_MOST + BLOCK_LEAST) / BLOCK_LEAST * BLOCK_LEAST;
    b->n = ws->n / size;
    double root = sqrt(size);
    for (int k = 0; k < b->n + VW; k++) b->s[k] = k < b->n ? root : 0.0;
    for (int k = 0; k < b->n && !ws->plain; k++) {
        double sum = 0.0;
        int filled = 0;
        for (int i = k * size; i < (k + 1) * size; i++) {
            sum += ws->root_weight[i];
            filled += ws->w[i] > 0.0;
        }
        b->s[k] = filled >= BLOCK_FILLED * size ? sum / sqrt(filled) : 0.0;
    }
}

/* z = sums of x, in units of the local noise, over the blocks. White noise has the variance one. */
static void sum_blocks(const gl_workspace *ws, const Blocks *b, const double *x, double *z)
{
    double unit = 1.0 / sqrt(b->size);
    for (int k = 0; k < b->n; k++) {
        vd sum = vset(0.0);
        for (int i = k * b->size; i < (k + 1) * b->size; i += VW) sum += vload(ws->root_weight + i) * vload(x + i);
        z[k] = unit * vsum(sum);
    }
    for (int k = b->n; k < b->n + VW; k++) z[k] = 0.0;
    for (int k = 0; k < b->n && !ws->plain; k++) {
        int filled = 0;
        for (int i = k * b->size; i < (k + 1) * b->size; i++) filled += ws->w[i] > 0.0;
        z[k] *= b->s[k] > 0.0 ? sqrt((double)b->size / filled) : 0.0;
    }
}

/* Mean covariance, for each channel, of two sums of m neighbouring channels that are apart channels apart. */
static double sum_covariance(const double *lags, int m, int apart)
{
    double sum = 0.0;
    for (int l = 1 - LAGS_FAR; l < LAGS_FAR; l++) {
        int overlap = m - (l > apart ? l - apart : apart - l);
        if (overlap > 0) sum += overlap * lags[l < 0 ? -l : l];
    }
    return sum / m;
}

/* Correlation of the noise at lags 0, 1, ... from the mean squares of the differences of channels that are one and
 * LAGS_FAR channels apart, which a baseline hardly changes. x is in units of the local noise. It is taken for that of a
 * Gaussian response: one number, with little scatter. */
static void set_short_lags(const gl_workspace *ws, const double *x, double *lags)
{
    vd near = vset(0.0), far = vset(0.0);
    for (int i = 0; i + LAGS_FAR + VW <= ws->n; i += VW) {
        vd step = vloadu(x + i + 1) - vload(x + i), leap = vloadu(x + i + LAGS_FAR) - vload(x + i);
        near += step * step;
        far += leap * leap;
    }
    double first = 1.0 - vsum(near) / vsum(far), r = clamp(first, 0.0, LAG_MOST), power = 1.0;
    lags[0] = 1.0;
    for (int l = 1; l < LAGS_FAR; l++) { /* r to the power l^2 */
        lags[l] = lags[l - 1] * power * r;
        power *= r * r;
    }
}

/* The noise of the sums z, from the differences of neighbours without those of features. x are the channels in units
 * of the local noise. Zero if too few blocks have data. */
static BlockNoise block_noise(const gl_workspace *ws, const Blocks *b, const double *x, const double *z)
{
    BlockNoise noise = {0.0, 0.0, 0.0, 0.0, {0.0, 0.0}, 0.0};
    vd size = vset(0.0), number = vset(0.0), square = vset(0.0), zero = vset(0.0), one = vset(1.0);
    for (int k = 0; k + 1 < b->n; k += VW) {
        vi there = (vloadu(b->s + k) > zero) & (vloadu(b->s + k + 1) > zero);
        vd step = vloadu(z + k + 1) - vloadu(z + k);
        size += (vd)((vi)step & there & INT64_MAX);
        number += (vd)((vi)one & there);
    }
    double count = vsum(number), clip = BLOCK_CLIP * 0.5 * SQRT_2PI * vsum(size) / count;
    if (count < BLOCKS_LEAST - 1) return noise;
    number = zero;
    for (int k = 0; k + 1 < b->n; k += VW) {
        vd step = vloadu(z + k + 1) - vloadu(z + k);
        vi there = (vloadu(b->s + k) > zero) & (vloadu(b->s + k + 1) > zero);
        vi kept = there & (step <= vset(clip)) & (step >= vset(-clip));
        step = (vd)((vi)step & kept);
        square += step * step;
        number += (vd)((vi)one & kept);
    }
    double half = vsum(square) / (2.0 * BLOCK_CLIPPED * vsum(number)), own = 1.0, beside = 0.0, slow = 1.0;
    double windows[2] = {1.0, 1.0};
    if (ws->order) {
        double lags[LAGS_FAR];
        set_short_lags(ws, x, lags);
        own = sum_covariance(lags, b->size, 0);
        beside = sum_covariance(lags, b->size, b->size);
        for (int l = 1; l < LAGS_FAR; l++) slow += 2.0 * lags[l];
        for (int i = 0; i < 2; i++) windows[i] = sum_covariance(lags, DIP_CHANNELS << i, 0);
    }
    noise.scale = fmax(half / (own - beside), BLOCK_VARIANCE);
    noise.block = noise.scale * own;
    noise.pair = noise.scale * (own + beside);
    noise.slow = noise.scale * slow;
    noise.dip_snr = sqrt(DIP_SNR * DIP_SNR + 2.0 * log(ws->n / (REFERENCE_CHANNELS * slow)));
    for (int i = 0; i < 2; i++) noise.window[i] = fmax(noise.scale, DIP_VARIANCE) * windows[i];
    return noise;
}

/* Products of a constant and a slope over the blocks, and their determinant. */
typedef struct {
    double step, ss, st, tt, determinant;
} LineBasis;

/* Place of a block in the spectrum, -1 to 1. */
INLINE double place_of(const LineBasis *l, int k) { return k * l->step - 1.0; }

static LineBasis line_basis(const Blocks *b)
{
    LineBasis l = {2.0 / (b->n - 1), 0.0, 0.0, 0.0, 0.0};
    for (int k = 0; k < b->n; k++) {
        double s = b->s[k], t = s * place_of(&l, k);
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
        q += b->s[k] * place_of(l, k) * z[k];
    }
    *constant = (l->tt * p - l->st * q) / l->determinant;
    *slope = (l->ss * q - l->st * p) / l->determinant;
    return *constant * p + *slope * q;
}

static void subtract_line(const Blocks *b, const LineBasis *l, double constant, double slope, double *z)
{
    for (int k = 0; k < b->n; k++) z[k] -= b->s[k] * (constant + slope * place_of(l, k));
}

/* Fall of chi-square with a wave of so many periods, beside a line. z is without its line. */
static double fall_with_wave(const Blocks *b, const LineBasis *l, const double *z, double periods)
{
    double angle = 6.283185307179586 * periods / b->n, turn_c = cos(angle), turn_s = sin(angle), c = 1.0, s = 0.0;
    double pc = 0.0, ps = 0.0, cc = 0.0, cs = 0.0, ss = 0.0, uc = 0.0, us = 0.0, tc = 0.0, ts = 0.0;
    for (int k = 0; k < b->n; k++) {
        double u = b->s[k], t = u * place_of(l, k), x = u * c, y = u * s;
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
    if (!(determinant > 1e-6 * cc * ss)) return 0.0;
    return (ss * pc * pc - 2.0 * cs * pc * ps + cc * ps * ps) / determinant;
}

/* Fall of chi-square with the best wave beside a line. The best one is that with the most power, one wave a lane. z is
 * without its line. */
static double fit_wave(const Blocks *b, const LineBasis *l, const double *z)
{
    enum { GROUPS = 4, WAVES = GROUPS * VW };
    double periods[WAVES], most = -1.0, best = 0.0, next = RIPPLE_FIRST, last = b->n / RIPPLE_BLOCKS;
    double unit = 6.283185307179586 / b->n, angle_c = cos(unit * next), angle_s = sin(unit * next);
    double step_c = cos(unit * RIPPLE_STEP), step_s = sin(unit * RIPPLE_STEP);
    vd weighted[BLOCKS_MOST];
    int at_end = 0;
    for (int k = 0; k < b->n; k++) weighted[k] = vset(b->s[k] * z[k]);
    while (!at_end) {
        vd turn_c[GROUPS], turn_s[GROUPS], c[GROUPS], s[GROUPS], pc[GROUPS], ps[GROUPS];
        for (int j = 0; j < WAVES; j++) {
            periods[j] = fmin(next, last);
            turn_c[j / VW][j % VW] = angle_c;
            turn_s[j / VW][j % VW] = angle_s;
            for (int step = next < RIPPLE_FINE ? 1 : 2; step && next < last; step--) {
                double turned = angle_c * step_c - angle_s * step_s;
                angle_s = angle_s * step_c + angle_c * step_s;
                angle_c = turned;
                next += RIPPLE_STEP;
            }
        }
        at_end = next >= last;
        for (int g = 0; g < GROUPS; g++) {
            c[g] = vset(1.0);
            s[g] = pc[g] = ps[g] = vset(0.0);
        }
        for (int k = 0; k < b->n; k++)
            for (int g = 0; g < GROUPS; g++) {
                vd turned = c[g] * turn_c[g] - s[g] * turn_s[g];
                pc[g] += weighted[k] * c[g];
                ps[g] += weighted[k] * s[g];
                s[g] = s[g] * turn_c[g] + c[g] * turn_s[g];
                c[g] = turned;
            }
        for (int j = 0; j < WAVES; j++) {
            double p = pc[j / VW][j % VW], q = ps[j / VW][j % VW], power = p * p + q * q;
            if (!(power > most)) continue;
            most = power;
            best = periods[j];
        }
    }
    return most > 0.0 ? fall_with_wave(b, l, z, best) : 0.0;
}

/* Lowest and highest sum of 1, 2, 4 ... neighbouring blocks, up to a quarter of them, over its noise: the blocks have
 * the variance one. */
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

/* Lowest and highest sum of DIP_CHANNELS neighbours of x, or of twice as many. x is followed by zeros. */
static void extreme_sums(const double *x, int n, int twice, double *lowest, double *highest)
{
    *lowest = *highest = 0.0;
    for (int i = 0; i < n; i++) {
        double sum = 0.0;
        for (int j = 0; j < DIP_CHANNELS << twice; j++) sum += x[i + j];
        *lowest = fmin(*lowest, sum);
        *highest = fmax(*highest, sum);
    }
}

/* Whether the channels x have a dip of a few channels. A line that is no Gaussian leaves dips beside crests, so that a
 * dip has to be deeper than every crest. The search only compares; most spectra have no candidate. */
static int has_dip(gl_workspace *ws, const BlockNoise *noise, const double *x, double *sums)
{
    double unit[2];
    vd limit[2];
    vi found = {0};
    for (int i = 0; i < 2; i++) {
        unit[i] = sqrt((DIP_CHANNELS << i) * noise->window[i]);
        limit[i] = vset(-noise->dip_snr * unit[i]);
    }
    for (int i = 0; i < ws->n_pad; i += VW) {
        vd sum = vload(x + i) + vloadu(x + i + 1) + (vloadu(x + i + 2) + vloadu(x + i + 3));
        vstore(sums + i, sum);
        found |= sum < limit[0];
    }
    for (int i = 0; i < ws->n_pad; i += VW) found |= vload(sums + i) + vloadu(sums + i + DIP_CHANNELS) < limit[1];
    ws->work += ws->n;
    if (!has_lane(found)) return 0;
    double snr = 0.0, against = 0.0;
    for (int i = 0; i < 2; i++) {
        double low, high;
        extreme_sums(x, ws->n, i, &low, &high);
        snr = fmax(snr, -low / unit[i]);
        against = fmax(against, high / unit[i]);
    }
    return snr > DIP_CONTRAST * against;
}

/* What a constant of one adds to the sums of the blocks that no high line reaches; zero for others. Low components are
 * left in, because an offset is fitted with them, and all are if they are many: an offset leaves few channels below
 * zero, so that the noise is taken for much less than it is, and everything for lines. */
static void set_open_blocks(const gl_workspace *ws, const Blocks *b, double *open)
{
    memcpy(open, b->s, sizeof b->s);
    if (ws->n_comp * OPEN_CHANNELS > ws->n) return;
    for (int i = 0; i < ws->n_comp; i++) {
        Comp c = ws->comp[i];
        double height = c.a * local_sensitivity(ws, c);
        if (height < OPEN_LINE) continue;
        double reach = c.s * sqrt(2.0 * log(height / OPEN_HEIGHT));
        int first = (int)(fmax(c.mu - reach, 0.0) / b->size), last = (int)(fmin(c.mu + reach, ws->n - 1.0) / b->size);
        for (int k = first; k <= last && k < b->n; k++) open[k] = 0.0;
    }
}

/* Whether the zero of the spectrum is off; z are the sums of the spectrum itself. Lines are positive, so the median of
 * the blocks is below zero only for an offset below zero. For one above zero, the quartile of the blocks without high
 * lines is, and so is every stretch of a fifth of the spectrum, which broad lines do not cover. */
static int has_offset(const gl_workspace *ws, const Blocks *b, const BlockNoise *noise, const double *z)
{
    double open[BLOCKS_MOST + VW], count = 0.0, open_count = 0.0;
    vd unraised = vset(0.0), lowered = vset(0.0), zero = vset(0.0), one = vset(1.0);
    set_open_blocks(ws, b, open);
    for (int k = 0; k < b->n; k++) {
        count += b->s[k] > 0.0;
        open_count += open[k] > 0.0;
    }
    double error = OFFSET_SNR * sqrt(noise->slow / open_count);
    vd raised_from = vset(QUARTILE_ERROR * error - QUARTILE * sqrt(noise->block));
    vd lowered_to = vset(-MEDIAN_ERROR * OFFSET_SNR * sqrt(noise->slow / count));
    for (int k = 0; k < b->n; k += VW) {
        vd x = vloadu(z + k);
        unraised += (vd)((vi)one & (vloadu(open + k) > zero) & (x <= raised_from));
        lowered += (vd)((vi)one & (vloadu(b->s + k) > zero) & (x < lowered_to));
    }
    if (vsum(lowered) > 0.5 * count) return 1;
    if (open_count < OPEN_LEAST || vsum(unraised) > 0.25 * open_count) return 0;
    int length = b->n / OFFSET_STRETCHES, filled = 0;
    double sum = 0.0, constants = 0.0, least = 0.0;
    for (int i = 0; i < ws->n_comp; i++)
        if (ws->comp[i].s > OFFSET_WIDTH * ws->n) least = fmax(least, OFFSET_SHARE * ws->comp[i].a);
    for (int k = 0; k < b->n; k++) {
        int gone = k - length;
        sum += (open[k] > 0.0 ? z[k] : 0.0) - (gone >= 0 && open[gone] > 0.0 ? z[gone] : 0.0);
        constants += open[k] - (gone >= 0 ? open[gone] : 0.0);
        filled += (open[k] > 0.0) - (gone >= 0 && open[gone] > 0.0);
        if (gone < -1 || 2 * filled < length) continue;
        if (sum < OFFSET_STRETCH_SNR * sqrt(noise->slow * filled) || sum < least * constants) return 0;
    }
    return 1;
}

static double square_of(const double *z, int n)
{
    double sum = 0.0;
    for (int k = 0; k < n; k++) sum += z[k] * z[k];
    return sum;
}

/* Whether the sums are noise: the mean square of pairs of neighbours, in which slow changes count twice. */
static int is_quiet(const Blocks *b, const BlockNoise *noise, const double *z)
{
    vd squares = vset(0.0);
    for (int k = 0; k < b->n; k += VW) squares += vloadu(z + k) * (vloadu(z + k) + vloadu(z + k + 1));
    return vsum(squares) < b->n * noise->pair + 2.0 * QUICK_EXCESS * noise->slow;
}

/* Writes the sums of the residual with the faint components, which may be baseline, to z. Returns whether there are
 * any. */
static int sum_with_faint(gl_workspace *ws, const Blocks *b, double *z)
{
    int faint = 0;
    for (int i = 0; i < ws->n_comp; i++) {
        Comp c = ws->comp[i];
        if (c.s < FAINT_WIDTH * b->size || c.a * local_sensitivity(ws, c) >= FAINT_HEIGHT) continue;
        if (!faint) memcpy(ws->trial, ws->residual, (size_t)ws->n_pad * sizeof(double));
        Window win = window_of(c, 0, ws->n_pad);
        bell_add(c, c.a, win, ws->bells, ws->trial);
        ws->work += win.hi - win.lo;
        faint = 1;
    }
    if (faint) sum_blocks(ws, b, ws->trial, z);
    return faint;
}

/* The flags of what the final model leaves, or takes for faint components. */
static uint32_t flatness_flags(gl_workspace *ws)
{
    Blocks b;
    double left[BLOCKS_MOST + VW], all[BLOCKS_MOST + VW];
    if (ws->n < BLOCKS_LEAST * BLOCK_LEAST || is_ended(ws)) return 0;
    double *x = ws->depth_rows + ws->scale_pad;
    for (int i = 0; i < ws->n_pad; i += VW) vstore(x + i, vload(ws->residual + i) * vload(ws->root_weight + i));
    set_blocks(ws, &b);
    sum_blocks(ws, &b, ws->residual, left);
    BlockNoise noise = block_noise(ws, &b, x, left);
    if (!(noise.scale > 0.0)) return 0;
    const double *raw = left;
    if (ws->n_comp) {
        sum_blocks(ws, &b, ws->y, all);
        raw = all;
    }
    uint32_t flags = has_offset(ws, &b, &noise, raw) ? GL_OFFSET : 0;
    int faint = sum_with_faint(ws, &b, all);
    int dip = has_dip(ws, &noise, x, x + ws->scale_stride);
    ws->work += 2.0 * ws->n;
    if (!flags && is_quiet(&b, &noise, left) && (!faint || is_quiet(&b, &noise, all))) return dip ? GL_NEGATIVE : 0;
    if (!faint) memcpy(all, left, sizeof all);

    LineBasis l = line_basis(&b);
    if (!(l.determinant > 1e-6 * l.ss * l.tt)) return flags;
    double constant, slope, other_constant, other_slope, lowest, highest, inverse = 1.0 / sqrt(noise.slow);
    for (int k = 0; k < b.n; k++) {
        left[k] *= inverse;
        all[k] *= inverse;
    }
    double own = square_of(all, b.n) - square_of(left, b.n);
    double fall = fit_line(&b, &l, all, &constant, &slope);
    double left_fall = fit_line(&b, &l, left, &other_constant, &other_slope);
    extreme_runs(&b, left, &lowest, &highest);
    double feature = fmax(lowest * lowest, highest * highest);
    if (flags || (fall > LINE_FALL && fall > LINE_SHARE * fmax(own, 0.0) + LINE_MARGIN * feature)) {
        if (fabs(slope) * sqrt(l.determinant / l.ss) > LINE_SNR) flags |= GL_SLOPE;
        subtract_line(&b, &l, other_constant, other_slope, left);
        extreme_runs(&b, left, &lowest, &highest);
        feature = fmax(lowest * lowest, highest * highest);
    }
    subtract_line(&b, &l, constant, slope, all);
    double wave = fit_wave(&b, &l, all);
    own += left_fall - fall;
    ws->work += 2.0 * ws->n;
    double least = FLAG_WAVE_FALL + 2.0 * log(b.n * BLOCK_LEAST / REFERENCE_CHANNELS);
    if (wave > least && wave > FLAG_WAVE_SHARE * fmax(own, 0.0) + FLAG_WAVE_MARGIN * feature)
        return flags | GL_RIPPLE;
    return lowest < -NEGATIVE_SNR || (dip && !flags) ? flags | GL_NEGATIVE : flags;
}
#endif
