/* Correlated noise: its autocorrelation, its autoregressive model, and the whitening of model and data.
 *
 * The noise of the channels, in units of the local noise, is a stationary autoregressive process of order p
 * (ws->order). Order zero is white noise, which needs none of this. The inverse covariance is L^T L with L banded: row
 * i predicts channel i from up to p channels before it. At the start of the spectrum and after a blank, the first rows
 * are the predictors of lower order, so that L^T L is the exact inverse covariance of each run of channels.
 */
#ifndef CORRELATION_H
#define CORRELATION_H

#include <math.h>
#include <string.h>

#include "bell.h"
#include "noise.h"
#include "scales.h"
#include "simd.h"
#include "workspace.h"

/* Channels on either side of a fit that its whitening needs: complete vectors, at least ORDER_MAX. */
#define WHITENING_REACH 8
/* White noise that is added to the estimated correlation, as a fraction of its variance. It limits how much the
 * whitening amplifies where the estimate has almost no power. */
#define CORRELATION_FLOOR 0.05
/* Noise counts as correlated if the prediction lowers the log-likelihood term N ln(variance) by this much. At 400
 * channels that is a correlation of 0.16 from channel to channel, three of its standard errors. */
#define CORRELATION_GATE 10.0
/* The same for each further order (Akaike's criterion). */
#define ORDER_COST 4.0
/* Least number of channels without signal for an estimate. */
#define CORRELATION_CHANNELS 64
/* How signal is found: the number of smoothing B3 passes (three give a width of 4.6 channels), the threshold in sigmas
 * of the smoothed spectrum, and the channels to add on either side. */
#define SIGNAL_LEVEL 3
/* Least threshold of signal-to-noise under correlated noise, as a fraction of the one for white noise. */
#define THRESHOLD_LEAST 0.8
/* Least FWHM of a component: in channels, and as a fraction of the response's, below one because fits scatter. */
#define FWHM_CHANNELS 1.0
#define FWHM_OF_RESPONSE 0.5
/* Correlation at these lags, channels, is that of a baseline or of a faint broad line and not of the noise. It is
 * subtracted as far as it exceeds this many of the standard errors of one lag. */
#define FAR_FIRST 10
#define FAR_LAST 16
#define FAR_STEP 2
#define FAR_MARGIN 1.5
/* Steps towards the correlation that a baseline took, and the most of it. */
#define RESTORE_PASSES 3
#define RESTORED_MOST 0.3
#define SIGNAL_CLIP 3.5
#define SIGNAL_MARGIN 4
/* The sigma of the smoothed spectrum is taken from every fourth channel: the others are nearly the same. */
#define SIGNAL_STRIDE 4

/* Levinson's recursion (Levinson 1947, Durbin 1960): the predictors of every order up to most from the correlations
 * r[0..most], as rows of L. Returns the order with the least N ln(variance) + cost if select is set, else the highest
 * one. */
static int levinson(const double *r, int most, double channels, int select, double rows[][ORDER_MAX + 1])
{
    double phi[ORDER_MAX + 1] = {0.0}, variance = 1.0, least = 0.0;
    int order = 0;
    memset(rows, 0, (size_t)(ORDER_MAX + 1) * sizeof *rows);
    rows[0][0] = 1.0;
    for (int m = 1; m <= most; m++) {
        double s = r[m], before[ORDER_MAX + 1];
        for (int t = 1; t < m; t++) s -= phi[t] * r[m - t];
        double reflection = s / variance;
        if (!(fabs(reflection) < 1.0)) break; /* not a valid correlation; that of the lower orders is */
        memcpy(before, phi, sizeof phi);
        phi[m] = reflection;
        for (int t = 1; t < m; t++) phi[t] = before[t] - reflection * before[m - t];
        variance *= 1.0 - reflection * reflection;
        double scale = 1.0 / sqrt(variance);
        rows[m][0] = scale;
        for (int t = 1; t <= m; t++) rows[m][t] = -phi[t] * scale;
        double score = channels * log(variance) + ORDER_COST * m;
        if (!select || score < least) {
            least = score;
            order = m;
        }
    }
    return order;
}

/* Sets the model from correlations r[0..most] with r[0] = 1. Chooses the order when select is set. */
static void set_correlation(gl_workspace *ws, const double *r, int most, double channels, int select)
{
    double floored[ORDER_MAX + 1] = {1.0};
    for (int l = 1; l <= most; l++) floored[l] = r[l] / (1.0 + CORRELATION_FLOOR);
    int order = levinson(floored, most, channels, select, ws->predictors);
    for (int m = 0; m <= most; m++) /* the floor is added to the measured noise */
        for (int t = 0; t <= m; t++) ws->predictors[m][t] /= sqrt(1.0 + CORRELATION_FLOOR);
    /* predictors have larger errors on other channels than on those they were estimated from (Akaike 1969) */
    ws->error_scale = select ? sqrt((channels + order) / (channels - order)) : 1.0;
    const double *h = ws->predictors[order];
    ws->order = order;
    ws->whitened_variance = 0.0;
    for (int s = 0; s <= order; s++)
        for (int t = 0; t <= order; t++) ws->whitened_variance += h[s] * h[t] * r[s > t ? s - t : t - s];
    if (!(ws->whitened_variance > 0.0)) ws->whitened_variance = 1.0;
    for (int l = 0; l < LAGS; l++) { /* the correlation that the model implies */
        ws->lags[l] = l <= order ? floored[l] : 0.0;
        for (int t = 1; t <= order && l > order; t++) ws->lags[l] -= h[t] / h[0] * ws->lags[l - t];
    }
    double sum = 0.0;
    for (int t = 0; t <= order; t++) sum += h[t];
    ws->zero_frequency = sum * sum;
    for (int l = 0; l < 2 * WHITENING_REACH; l++) {
        int lag = l < WHITENING_REACH ? WHITENING_REACH - l : l - WHITENING_REACH;
        double q = 0.0;
        for (int t = 0; t + lag <= order; t++) q += h[t] * h[t + lag];
        ws->precision[l] = q;
    }
    for (int j = 0; j < ws->scales_max; j++) {
        const double *overlap = ws->scale_overlap[j];
        double start = overlap[0], search = overlap[0] * ws->precision[WHITENING_REACH];
        for (int l = 1; l < LAGS; l++) start += 2.0 * ws->lags[l] * overlap[l];
        for (int l = 1; l <= order; l++) search += 2.0 * ws->precision[WHITENING_REACH + l] * overlap[l];
        ws->start_inv_norm[j] = start > 0.0 ? 1.0 / sqrt(start) : 0.0;
        ws->search_inv_norm[j] = search > 0.0 ? 1.0 / sqrt(search) : 0.0;
    }
}

/* Mean product of good channels that are lag apart, and their number. x is zero where good is. */
static double lagged_mean(const double *x, const double *good, int n_pad, int lag, double *number)
{
    vd sum = vset(0.0), count = vset(0.0);
    for (int i = 0; i < n_pad; i += VW) {
        sum += vload(x + i) * vloadu(x + i + lag);
        count += vload(good + i) * vloadu(good + i + lag);
    }
    *number = vsum(count);
    return vsum(sum) / fmax(*number, 1.0);
}

/* Whether noise with this correlation from channel to channel, estimated from so many channels, is not white. */
INLINE int is_correlated(double r, double channels)
{
    return r * r < 1.0 && -channels * log(1.0 - r * r) >= CORRELATION_GATE;
}

/* A fitted baseline takes the slow part of the noise with it: with so many coefficients for each channel, it takes that
 * many times the sum of all correlations from each lag. Puts that back; returns the factor of the variance. */
static double restore_slow_noise(double *r, double coefficients)
{
    double lost = 0.0;
    for (int pass = 0; pass < RESTORE_PASSES; pass++) {
        double sum = 1.0;
        for (int l = 1; l <= ORDER_MAX; l++) sum += 2.0 * fmax((r[l] + lost) / (1.0 + lost), 0.0);
        lost = fmin(coefficients * sum * (1.0 + lost), RESTORED_MOST);
    }
    for (int l = 1; l <= ORDER_MAX; l++) r[l] = (r[l] + lost) / (1.0 + lost);
    return 1.0 + lost;
}

/* Estimates the noise and (if model is set) its correlation from the channels of x without signal, which it finds in
 * the smoothed spectrum. x is in units of the local noise, up to a factor. Returns the variance of the noise, or a
 * negative number if there are too few channels or (if model is set) the noise is white. */
static double estimate_correlation(gl_workspace *ws, const double *x, int model)
{
    int n = ws->n, n_pad = ws->n_pad, level = SIGNAL_LEVEL < ws->scales_max ? SIGNAL_LEVEL : ws->scales_max;
    memcpy(scale_row(ws, 0), x, (size_t)n_pad * sizeof *x);
    for (int j = 0; j < level; j++) smooth_pass(ws, j);
    const double *smooth = scale_row(ws, level);
    int count = 0;
    for (int i = SIGNAL_STRIDE / 2; i < n; i += SIGNAL_STRIDE) {
        ws->scratch[count] = -smooth[i];
        count += smooth[i] < 0.0;
    }
    if (count < CORRELATION_CHANNELS / (4 * SIGNAL_STRIDE)) return -1.0;
    double limit = SIGNAL_CLIP * MAD_TO_SIGMA * median_of(ws->scratch, count, ws->snr);
    double *good = ws->good, *wide = ws->white, *masked = ws->other_white;
    vi all = ~(vi){0};
    for (int i = 0; i < n_pad; i += VW) {
        vd s = vload(smooth + i);
        vi quiet = (s <= vset(limit)) & (s >= vset(-limit));
        all &= quiet;
        vstore(good + i, (vd)((vi)vset(1.0) & quiet));
    }
    if (has_lane(~all)) { /* a channel is good if all within the margin are */
        double *in = good, *out = wide;
        /* channels beyond the ends count as good */
        for (int i = n; i < n_pad + ROW_MARGIN; i++) good[i] = 1.0;
        for (int i = 1; i <= ROW_MARGIN; i++) good[-i] = 1.0;
        /* products of 2, 4 and 8 neighbours, then of 9 around the channel */
        for (int step = 1; step < 2 * SIGNAL_MARGIN; step *= 2) {
            for (int i = -ROW_MARGIN; i < n_pad; i += VW) vstore(out + i, vload(in + i) * vloadu(in + i + step));
            for (int i = n_pad; i < n_pad + ROW_MARGIN; i++) out[i] = 1.0;
            double *t = in;
            in = out;
            out = t;
        }
        for (int i = 0; i < n_pad; i += VW)
            vstore(out + i, vloadu(in + i - SIGNAL_MARGIN) * vloadu(in + i - SIGNAL_MARGIN + 1));
    }
    double total, pairs;
    for (int i = 0; i < n_pad; i += VW) {
        vi there = vload(ws->w + i) > vset(0.0);
        vd g = (vd)((vi)vload(good + i) & there);
        vstore(good + i, g);
        vstore(masked + i, g * vload(x + i));
    }
    for (int i = 0; i < ROW_MARGIN; i++)
        good[n_pad + i] = masked[n_pad + i] = good[-1 - i] = masked[-1 - i] = wide[-1 - i] = wide[n_pad + i] = 0.0;
    double variance = lagged_mean(masked, good, n_pad, 0, &total);
    if (total < CORRELATION_CHANNELS || !(variance > 0.0)) return -1.0;
    if (!model) return variance;
    double r[ORDER_MAX + 1] = {1.0};
    r[1] = lagged_mean(masked, good, n_pad, 1, &pairs) / variance;
    if (!is_correlated(r[1], total)) return -1.0;
    for (int l = 2; l <= ORDER_MAX; l++) r[l] = lagged_mean(masked, good, n_pad, l, &pairs) / variance;
    if (ws->n_base) variance *= restore_slow_noise(r, ws->n_base / total);
    double far = 0.0;
    for (int l = FAR_FIRST; l <= FAR_LAST; l += FAR_STEP) far += lagged_mean(masked, good, n_pad, l, &pairs) / variance;
    far = far * FAR_STEP / (FAR_LAST - FAR_FIRST + FAR_STEP) - FAR_MARGIN / sqrt(total);
    if (far > 0.0 && far < 1.0) {
        for (int l = 1; l <= ORDER_MAX; l++) r[l] = (r[l] - far) / (1.0 - far);
        variance *= 1.0 - far;
        if (!is_correlated(r[1], total)) return -1.0;
    }
    set_correlation(ws, r, ORDER_MAX, total, 1);
    return variance;
}

/* FWHM of the Gaussian response that gives white noise the model's correlation from channel to channel: after a
 * Gaussian of width sigma, the correlation at a lag of one channel is exp(-1 / (4 sigma^2)). */
static double response_fwhm(const gl_workspace *ws)
{
    double r = ws->lags[1];
    return r > 0.0 && r < 1.0 ? FWHM_PER_SIGMA / (2.0 * sqrt(-log(r))) : 0.0;
}

/* Threshold of signal-to-noise with as many false alarms as that for white noise: there are zero_frequency times as
 * many independent channels, and the tail of a normal distribution falls as exp(-t^2 / 2). */
static double correlated_threshold(const gl_workspace *ws, double white)
{
    double eased = white * white + 2.0 * log(fmin(ws->zero_frequency, 1.0));
    return sqrt(fmax(eased, THRESHOLD_LEAST * THRESHOLD_LEAST * white * white));
}

/* The rows of L over the channels, the root of the weight included. */
static void set_taps(gl_workspace *ws)
{
    int run = 0;
    for (int i = 0; i < ws->n_pad; i++) {
        int there = ws->w[i] > 0.0, m = run < ws->order ? run : ws->order;
        const double *h = ws->predictors[m];
        for (int t = 0; t <= ws->order; t++)
            tap_row(ws, t)[i] = there && t <= m ? h[t] * ws->root_weight[i - t] : 0.0;
        run = there ? run + 1 : 0;
    }
}

/* out = L x over [lo, hi); returns its square. */
INLINE double whiten(const gl_workspace *ws, const double *x, int lo, int hi, double *out)
{
    vd square = vset(0.0);
    for (int i = lo; i < hi; i += VW) {
        vd sum = vload(tap_row(ws, 0) + i) * vload(x + i);
        for (int t = 1; t <= ws->order; t++) sum += vload(tap_row(ws, t) + i) * vloadu(x + i - t);
        vstore(out + i, sum);
        square += sum * sum;
    }
    return vsum(square);
}

/* out = L^T e over [lo, hi). */
INLINE void whiten_back(const gl_workspace *ws, const double *e, int lo, int hi, double *out)
{
    for (int i = lo; i < hi; i += VW) {
        vd sum = vload(tap_row(ws, 0) + i) * vload(e + i);
        for (int t = 1; t <= ws->order; t++) sum += vloadu(tap_row(ws, t) + i + t) * vloadu(e + i + t);
        vstore(out + i, sum);
    }
}

/* ws->pull = L^T L residual: under correlated noise, every gradient is computed from it. */
static void set_pull(gl_workspace *ws, const double *residual)
{
    whiten(ws, residual, 0, ws->n_pad, ws->white);
    whiten_back(ws, ws->white, 0, ws->n_pad, ws->pull);
}

/* Inner product of two bells under the inverse covariance of unit noise, and its derivatives by their distance: orders
 * 0..most, only even ones if even is set. Integrals replace sums over channels: two bells of widths s and t at distance
 * d have the product sqrt(2 pi) s t / S exp(-d^2 / 2 S^2), S^2 = s^2 + t^2, whose derivatives are Hermite polynomials.
 */
INLINE void bell_products(const gl_workspace *ws, double s, double t, double distance, int most, int even, double *out)
{
    double inv = 1.0 / sqrt(s * s + t * t), scale = SQRT_2PI * s * t * inv;
    vd sums[9];
    for (int m = 0; m <= most; m++) sums[m] = vset(0.0);
    for (int l = 0; l < 2 * WHITENING_REACH; l += VW) {
        vd v = (vset(distance + l - WHITENING_REACH) + viota()) * vset(inv);
        vd g = vload(ws->precision + l) * vexp(vset(-0.5) * v * v), last = vset(0.0), now = vset(1.0);
        for (int m = 0; m <= most; m++) {
            if (!even || m % 2 == 0) sums[m] += g * now;
            vd next = v * now - vset(m) * last;
            last = now;
            now = next;
        }
    }
    for (int m = 0; m <= most; m++, scale *= -inv) out[m] = even && m % 2 ? 0.0 : scale * vsum(sums[m]);
}

/* Square of the signal-to-noise of a bell of unit amplitude and width s. */
INLINE double bell_power(const gl_workspace *ws, double s)
{
    double power;
    bell_products(ws, s, s, 0.0, 0, 0, &power);
    return power;
}

/* Block of the normal matrix between components c and d, rows of c: da, dmu, ds. */
INLINE void product_block(const gl_workspace *ws, Comp c, Comp d, double block[3][3])
{
    double p[5], u = c.a, v = d.a, cs = 1.0 / c.s, ds = 1.0 / d.s;
    bell_products(ws, c.s, d.s, c.mu - d.mu, 4, 0, p);
    block[0][0] = p[0];
    block[0][1] = -v * p[1];
    block[0][2] = v * (p[0] * ds + d.s * p[2]);
    block[1][0] = u * p[1];
    block[1][1] = -u * v * p[2];
    block[1][2] = u * v * (p[1] * ds + d.s * p[3]);
    block[2][0] = u * (p[0] * cs + c.s * p[2]);
    block[2][1] = -u * v * (p[1] * cs + c.s * p[3]);
    block[2][2] = u * v * (p[0] * cs * ds + p[2] * (c.s * ds + d.s * cs) + c.s * d.s * p[4]);
}

/* Sums g z^m pull, m = 0..4, of a component. */
INLINE Moments pull_moments(Comp c, Window win, const double *bell, const double *pull)
{
    double inv = 1.0 / c.s;
    vd z = vset((win.lo - c.mu) * inv) + viota() * vset(inv), dz = vset(VW * inv), zero = vset(0.0);
    vd c0 = zero, c1 = zero, c2 = zero, c3 = zero, c4 = zero;
    for (int i = win.lo; i < win.hi; i += VW) {
        vd e = vload(bell + i) * vload(pull + i), z2 = z * z, ez = e * z, ez2 = e * z2;
        c0 += e;
        c1 += ez;
        c2 += ez2;
        c3 += ez * z2;
        c4 += ez2 * z2;
        z += dz;
    }
    return (Moments){{0.0, 0.0, 0.0, 0.0, 0.0}, {vsum(c0), vsum(c1), vsum(c2), vsum(c3), vsum(c4)}};
}
#endif
