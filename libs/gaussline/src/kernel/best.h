/* The preset `best`: matched-filter search, score-test splits, removal tests. */
#ifndef BEST_H
#define BEST_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "bell.h"
#include "correlation.h"
#include "model.h"
#include "persistence.h"
#include "search.h"
#include "solver.h"
#include "workspace.h"


/* Persistence of a starting peak of the lightly smoothed spectrum, in beta times its noise: a peak and its saddle both
 * carry noise. */
#define START_PERSISTENCE 1.4142135623730951
/* A starting peak may fall short of mf_snr_min by this factor; the fit decides. */
#define START_SNR 0.8
/* With more starting peaks than this, all are found in one sweep, whose time does not grow with their number. */
#define START_FEW 8
/* A candidate of the residual search hides others within this many widths of its scale, until the next round. */
#define SUPPRESS_REACH 2.5
/* Squared projection of the residual on the third and fourth Hermite shapes above which a split is tried: for white
 * and for correlated noise. */
#define SPLIT_SCORE 7.0
#define SPLIT_SCORE_CORRELATED 4.0
/* Least fall of chi-square for three more parameters. */
#define SPLIT_GAIN 12.0
/* Number of shapes of a split that are tried: the one that the signs of the two projections suggest, and the next. */
#define SPLIT_SHAPES 2
/* Trial components beside a line: least matched-filter S/N of the residual, largest distance to the line in its widths,
 * and the least fall of chi-square to keep one. */
#define BESIDE_SNR 3.0
#define BESIDE_REACH 6.0
#define BESIDE_GAIN 14.0
/* The second start takes the maxima of a wavelet plane. In this order: the plane (between this scale and the next); how
 * far the plane falls between two maxima, in the noise of the smoothed spectrum, for white and for correlated noise
 * (for which the criterion rejects more); the least height of the smoothed spectrum there; the width of a component at
 * the start; its height divided by the smoothed spectrum's; and the cost of a component when both models are compared.
 */
#define CURVED_LEVEL 2
#define CURVED_SNR 1.25
#define CURVED_SNR_CORRELATED 0.9
#define CURVED_FLOOR 2.0
#define CURVED_WIDTH 4.0
#define CURVED_HEIGHT 1.2
#define SECOND_COST 13.0
/* A bound that only saves work is lower by this factor, because of rounding. */
#define NEARLY 0.999
/* A blended component is removed if chi-square rises by less than this without it. */
#define REMOVAL_COST 12.0

/* A component that is too narrow may be part of a line whose other part is less than this many times as wide. */
#define PART_WIDTH 3.0
/* Largest amplitude of a given component, in the largest channel. Beyond 10^16 the residual would lose the spectrum. */
#define START_HEIGHT 1e6

/* The component with the flux, the mean and the variance of two. */
static Comp merged(Comp a, Comp b)
{
    double p = a.a * a.s, q = b.a * b.s, share = p / (p + q), apart = a.mu - b.mu;
    double variance = share * a.s * a.s + (1.0 - share) * (b.s * b.s + share * apart * apart);
    double s = sqrt(variance);
    return (Comp){(p + q) / s, b.mu + share * apart, s};
}

/* Removes the invalid component k. If it is strong but too narrow, and beside another narrow one, both are parts of one
 * line of few channels: the other part alone would converge to a spike, so the sum of both takes its place. */
static void remove_invalid(gl_workspace *ws, int k)
{
    Comp gone = ws->comp[k], other;
    int partner = -1;
    if (matched_filter_snr(ws, gone) * local_sensitivity(ws, gone) >= ws->mf_snr_min)
        for (int i = 0; i < ws->n_comp; i++)
            if (i != k && are_coupled(gone, ws->comp[i], COUPLING) && ws->comp[i].s < PART_WIDTH * gone.s &&
                (partner < 0 || fabs(gone.mu - ws->comp[i].mu) < fabs(gone.mu - ws->comp[partner].mu)))
                partner = i;
    if (partner >= 0) other = ws->comp[partner];
    else if (ws->n_dead < ws->capacity) ws->dead[ws->n_dead++] = gone;
    remove_component(ws, k);
    if (partner < 0) return;
    remove_component(ws, partner > k ? partner - 1 : partner);
    add_component(ws, merged(gone, other));
}

/* Removes invalid components, the weakest first, and fits the neighbours after each: of two that share a line, one may
 * be valid without the other. */
static void prune(gl_workspace *ws, double tolerance)
{
    for (;;) {
        int worst = -1;
        double least = 1e300;
        for (int i = 0; i < ws->n_comp; i++) {
            if (is_valid(ws, ws->comp[i])) continue;
            double m = matched_filter_snr(ws, ws->comp[i]);
            if (m < least) {
                least = m;
                worst = i;
            }
        }
        if (worst < 0) return;
        remove_invalid(ws, worst);
        fit_touched(ws, tolerance, COUPLING);
    }
}

/* Adds components where the matched filter exceeds its threshold in the residual, fits, and removes invalid ones.
 * Returns how many stayed. */
static int pursue(gl_workspace *ws)
{
    int added = 0;
    for (int round = 0; round <= ws->params->max_refine_iter; round++) {
        int found = 0;
        if (out_of_budget(ws)) break;
        if (!ws->n_comp && !has_candidate(ws, ws->mf_snr_min)) break;
        scale_space(ws);
        for (;;) {
            Candidate c = strongest(ws);
            if (c.snr < ws->mf_snr_min || out_of_budget(ws)) break;
            double reach = SUPPRESS_REACH * ws->scale_sigma[c.scale] + 1.0;
            int dead = 0;
            for (int i = 0; i < ws->n_dead; i++) dead |= fabs(ws->dead[i].mu - c.channel) < 1.0 + ws->dead[i].s;
            suppress(ws, c.channel, dead ? 1.0 : reach);
            if (dead) continue;
            Comp new = candidate_component(ws, c);
            if (!add_component(ws, new)) break;
            for (int i = 0; i < ws->n_comp - 1; i++)
                if (are_coupled(new, ws->comp[i], COUPLING)) ws->dirty[i] = 1;
            found++;
        }
        if (!found) break;
        fit_touched(ws, TOL_SEARCH, COUPLING);
        int before = ws->n_comp;
        prune(ws, TOL_SEARCH);
        int kept = found - (before - ws->n_comp);
        if (kept <= 0) break;
        added += kept;
    }
    return added;
}

/* The scores under correlated noise: the third and fourth derivatives of the bell, made orthogonal under the inverse
 * covariance to the directions that the fit has used, the bell and its first two derivatives. Needs ws->pull. */
static void correlated_scores(gl_workspace *ws, Comp c, Window win, double *skew, double *kurtosis)
{
    memset(ws->trial + win.lo, 0, (size_t)(win.hi - win.lo) * sizeof(double));
    bell_add(c, 0.0, win, ws->bells, ws->trial);
    Moments m = pull_moments(c, win, ws->bells, ws->pull);
    ws->work += win.hi - win.lo;
    double t[9], local = local_sensitivity(ws, c), power = 1.0;
    bell_products(ws, c.s, c.s, 0.0, 8, 1, t);
    for (int i = 0; i <= 8; i++, power *= c.s) t[i] *= power * local * local;
    double beta = t[4] / t[2];
    double third = 3.0 * m.c[1] - m.c[3] + beta * m.c[1], third_norm = t[4] * beta - t[6];
    double bend = t[0] * t[4] - t[2] * t[2];
    double x = (t[4] * t[4] - t[2] * t[6]) / bend, y = (t[0] * t[6] - t[2] * t[4]) / bend;
    double fourth = m.c[4] - 6.0 * m.c[2] + 3.0 * m.c[0] - x * m.c[0] - y * (m.c[2] - m.c[0]);
    double fourth_norm = t[8] - x * t[4] - y * t[6];
    *skew = third_norm > 0.0 ? -third / sqrt(third_norm) : 0.0;
    *kurtosis = fourth_norm > 0.0 ? fourth / sqrt(fourth_norm) : 0.0;
}

/* Projections of the residual on g H3 and g H4 of component c, in sigmas. */
static void shape_scores(gl_workspace *ws, Comp c, double *skew, double *kurtosis)
{
    Window win = window_of(c, 0, ws->n_pad);
    if (ws->order) {
        correlated_scores(ws, c, win, skew, kurtosis);
        return;
    }
    memset(ws->trial + win.lo, 0, (size_t)(win.hi - win.lo) * sizeof(double));
    bell_add(c, 0.0, win, ws->bells, ws->trial);
    Moments m = moments_of(c, win, ws->w, ws->bells, ws->residual);
    ws->work += 2 * (win.hi - win.lo);
    double norm = c.s * SQRT_PI;
    *skew = (8.0 * m.c[3] - 12.0 * m.c[1]) / sqrt(48.0 * norm);
    *kurtosis = (16.0 * m.c[4] - 48.0 * m.c[2] + 12.0 * m.c[0]) / sqrt(384.0 * norm);
}

/* Replaces component k by two and fits. Keeps them if chi-square falls by enough and both are valid. */
static int try_split(gl_workspace *ws, int k, Comp left, Comp right, double chi2, double least_fall)
{
    keep_model(ws);
    remove_component(ws, k);
    if (!add_component(ws, left) || !add_component(ws, right)) {
        restore_model(ws);
        return 0;
    }
    fit_touched(ws, TOL_TRIAL, COUPLING);
    int good = chi2 - chi_square(ws) > least_fall;
    for (int i = 0; i < ws->n_comp && good; i++) good = is_valid(ws, ws->comp[i]);
    if (!good) restore_model(ws);
    return good;
}

/* Splits the component with the highest score, and repeats this while splits are kept. Returns how many were split. */
static int split_all(gl_workspace *ws, double least_score, double least_fall)
{
    int splits = 0;
    while (!out_of_budget(ws) && splits < ws->params->max_components) {
        double top = least_score, skew = 0.0, kurtosis = 0.0;
        int which = -1;
        if (ws->order) set_pull(ws, ws->residual);
        for (int i = 0; i < ws->n_comp; i++) {
            double h3, h4;
            if (ws->tested[i]) continue;
            shape_scores(ws, ws->comp[i], &h3, &h4);
            double score = h3 * h3 + h4 * h4;
            if (score > top) {
                top = score;
                which = i;
                skew = h3;
                kurtosis = h4;
            }
        }
        if (which < 0) break;
        Comp c = ws->comp[which];
        double chi2 = chi_square(ws), side = skew > 0.0 ? 1.0 : -1.0;
        int done = 0;
        int first = kurtosis > fabs(skew) ? 2 : kurtosis < -fabs(skew) ? 0 : 1;
        int shapes[3] = {first, (first + 1) % 3, (first + 2) % 3};
        for (int t = 0; t < SPLIT_SHAPES && !done; t++) {
            Comp a = c, b = c;
            if (shapes[t] == 0) { /* flat top: two alike */
                a.mu -= 0.75 * c.s;
                b.mu += 0.75 * c.s;
                a.s = b.s = 0.66 * c.s;
                a.a = b.a = 0.76 * c.a;
            } else if (shapes[t] == 1) { /* tail on one side */
                a.mu -= side * 0.35 * c.s;
                a.s = 0.8 * c.s;
                a.a = 0.85 * c.a;
                b.mu += side * 1.3 * c.s;
                b.s = 0.8 * c.s;
                b.a = 0.35 * c.a;
            } else { /* core and wings */
                a.s = 0.6 * c.s;
                a.a = 0.5 * c.a;
                b.s = 1.5 * c.s;
                b.a = 0.5 * c.a;
            }
            a.mu = clamp(a.mu, 0.0, ws->n - 1.0);
            b.mu = clamp(b.mu, 0.0, ws->n - 1.0);
            done = try_split(ws, which, a, b, chi2, least_fall);
        }
        if (done) splits++;
        else ws->tested[which] = 1;
    }
    return splits;
}

/* Tries components where the residual beside a line is high, but too low for the matched filter: a blend that is fitted
 * with too few components leaves such a residual. A component is kept if chi-square falls by enough. Returns how many
 * stayed. */
static int add_beside(gl_workspace *ws)
{
    int added = 0;
    if (!ws->n_comp) return 0;
    if (!ws->searched) scale_space(ws);
    while (!out_of_budget(ws)) {
        Candidate found = strongest(ws);
        if (found.snr < BESIDE_SNR) break;
        suppress(ws, found.channel, ws->scale_sigma[found.scale] + 1.0);
        Comp new = candidate_component(ws, found);
        int beside = 0;
        for (int i = 0; i < ws->n_comp; i++) beside |= fabs(new.mu - ws->comp[i].mu) < BESIDE_REACH * ws->comp[i].s;
        if (!beside) continue;
        double chi2 = chi_square(ws);
        keep_model(ws);
        if (!add_component(ws, new)) break;
        for (int i = 0; i < ws->n_comp - 1; i++)
            if (are_coupled(new, ws->comp[i], COUPLING)) ws->dirty[i] = 1;
        fit_touched(ws, TOL_TRIAL, COUPLING);
        int good = chi2 - chi_square(ws) > BESIDE_GAIN;
        for (int i = 0; i < ws->n_comp && good; i++) good = is_valid(ws, ws->comp[i]);
        if (!good) {
            restore_model(ws);
            continue;
        }
        added++;
        scale_space(ws);
    }
    return added;
}

/* Removes components without which, after a fit of the others, chi-square rises by less than the removal threshold. */
static void remove_redundant(gl_workspace *ws)
{
    memset(ws->tested, 0, (size_t)ws->capacity);
    while (!out_of_budget(ws)) {
        int which = -1;
        double least = INFINITY;
        for (int i = 0; i < ws->n_comp; i++) {
            if (ws->tested[i]) continue;
            int blended = 0;
            for (int j = 0; j < ws->n_comp; j++) blended |= j != i && are_blended(ws, ws->comp[i], ws->comp[j]);
            double m = matched_filter_snr(ws, ws->comp[i]);
            if (blended && m < least) {
                least = m;
                which = i;
            }
        }
        if (which < 0) break;
        double chi2 = chi_square(ws);
        keep_model(ws);
        remove_component(ws, which);
        fit_touched(ws, TOL_SEARCH, COUPLING);
        if (chi_square(ws) - chi2 < REMOVAL_COST) continue;
        restore_model(ws);
        ws->tested[which] = 1;
    }
}

/* Width of a peak of the smoothed spectrum, from the nearer of its two half-height points. */
static Comp smoothed_peak(const gl_workspace *ws, const double *y, Peak peak, double smoothing)
{
    double half = 0.5 * peak.birth, reach = ws->n;
    for (int side = -1; side <= 1; side += 2) {
        int i = peak.index;
        while (i + side >= 0 && i + side < ws->n && y[i + side] > half) i += side;
        if (i + side < 0 || i + side >= ws->n) continue;
        double d = fabs((double)(i - peak.index)) + (y[i] - half) / (y[i] - y[i + side]);
        reach = d < reach ? d : reach;
    }
    double width = reach / 1.1774;
    double variance = width * width - smoothing * smoothing;
    double s = sqrt(variance > 0.25 ? variance : 0.25);
    s = clamp(s, 2.0 * WIDTH_MIN, 0.4 * ws->n);
    double root = ws->root_weight[peak.index];
    return (Comp){peak.birth * (width > s ? width / s : 1.0) / (root > 0.0 ? root : 1.0), peak.index, s};
}

/* Puts components at the maxima of the wavelet plane into ws->curved: these show lines whose sum has one maximum but
 * two bends. The scales of the spectrum up to the finer one are already computed. */
static void curved_peaks(gl_workspace *ws)
{
    int level = CURVED_LEVEL;
    ws->n_curved = 0;
    if (ws->scales_max <= level) return;
    const double *fine = scale_row(ws, level), *coarse = scale_row(ws, level + 1);
    if (ws->plain) { /* whether the highest maximum reaches the S/N below */
        Comp unit = {CURVED_HEIGHT, 0.0, CURVED_WIDTH};
        vd enough = vset(NEARLY * ws->mf_snr_min / matched_filter_snr(ws, unit));
        vi found = {0};
        for (int i = 0; i < ws->n_pad; i += VW) found |= vload(fine + i) >= enough;
        if (!has_lane(found)) return;
    }
    smooth_pass(ws, level);
    double noise = 1.0 / (ws->order ? ws->start_inv_norm : ws->scale_inv_norm)[level - 1];
    double drop = (ws->order ? CURVED_SNR_CORRELATED : CURVED_SNR) * noise, least = CURVED_FLOOR * noise;
    double top = -INFINITY, bottom = INFINITY;
    int at = 0, rising = 1, is_low_before = 1;
    for (int i = 0; i <= ws->n && ws->n_curved < ws->params->max_components; i++) {
        /* of channels below the floor, only the first one after others changes anything */
        if (is_low_before && i % VW == 0 && i + VW <= ws->n && !has_lane(vload(fine + i) > vset(least))) {
            i += VW - 1;
            continue;
        }
        is_low_before = !(i < ws->n && fine[i] > least);
        double w = is_low_before ? -INFINITY : fine[i] - coarse[i];
        if (rising && w > top) {
            top = w;
            at = i;
        } else if (rising && w < top - drop) {
            double root = ws->root_weight[at];
            Comp c = {CURVED_HEIGHT * fine[at] / (root > 0.0 ? root : 1.0), at, CURVED_WIDTH};
            if (top > drop && local_sensitivity(ws, c) * matched_filter_snr(ws, c) >= ws->mf_snr_min)
                ws->curved[ws->n_curved++] = c;
            rising = 0;
            bottom = w;
        } else if (!rising && w > bottom + drop) {
            rising = 1;
            top = w;
            at = i;
        } else if (!rising && w < bottom) {
            bottom = w;
        }
    }
}

/* Whether a starting component is near enough to the least S/N for a fit. */
static int may_be_line(const gl_workspace *ws, Comp c)
{
    return local_sensitivity(ws, c) * matched_filter_snr(ws, c) >= START_SNR * ws->mf_snr_min;
}

/* Peaks of the smoothed spectrum above the persistence and near enough to the least S/N, most persistent first. Few
 * maxima are so high over the lowest channel that they may be one; if there are many, all peaks are found in one sweep.
 * Returns how many. */
static int starting_peaks(gl_workspace *ws, const double *y, double threshold, double smoothing)
{
    int n = ws->n, whole = n / VW * VW, count = 0;
    vd low = vset(INFINITY), high = vset(-INFINITY);
    for (int i = 0; i < whole; i += VW) {
        vd v = vload(y + i);
        vi down = v < low, up = v > high;
        low = (vd)(((vi)v & down) | ((vi)low & ~down));
        high = (vd)(((vi)v & up) | ((vi)high & ~up));
    }
    double least = 0.0, most = -INFINITY;
    for (int j = 0; j < VW; j++) {
        least = low[j] < least ? low[j] : least;
        most = high[j] > most ? high[j] : most;
    }
    for (int i = whole; i < n; i++) {
        least = y[i] < least ? y[i] : least;
        most = y[i] > most ? y[i] : most;
    }
    double above = least + NEARLY * threshold;
    int global = -1;
    for (int i = 0; i < n; i += VW) {
        if (!has_lane(vload(y + i) > vset(above))) continue;
        for (int j = i; j < n && j < i + VW; j++) {
            if (!(y[j] > above) || (j > 0 && y[j - 1] >= y[j]) || (j + 1 < n && y[j + 1] > y[j])) continue;
            int is_global = global < 0 && y[j] == most;
            if (is_global) global = j;
            if (!may_be_line(ws, smoothed_peak(ws, y, (Peak){.birth = y[j], .index = j}, smoothing))) continue;
            if (count == START_FEW) return persistence_peaks(y, n, threshold, ws->ridges, ws->peaks, n / 2 + 2);
            double persistence = is_global ? most : persistence_at(y, n, j);
            if (is_global ? persistence >= threshold : persistence > threshold)
                ws->peaks[count++] = (Peak){.birth = y[j], .persistence = persistence, .index = j};
        }
    }
    qsort(ws->peaks, (size_t)count, sizeof *ws->peaks, peak_compare);
    return count;
}

/* The first model: persistent peaks of the spectrum smoothed to a width of 2.2 channels. */
static void start_from_peaks(gl_workspace *ws)
{
    int level = ws->scales_max > 1;
    set_bridged_row(ws);
    for (int j = 0; j <= level; j++) smooth_pass(ws, j);
    double *y = scale_row(ws, level + 1), noise = 1.0 / (ws->order ? ws->start_inv_norm : ws->scale_inv_norm)[level];
    double threshold = START_PERSISTENCE * ws->params->beta * noise;
    int count = starting_peaks(ws, y, threshold, ws->scale_sigma[level]);
    for (int i = 0; i < count; i++) {
        Comp c = smoothed_peak(ws, y, ws->peaks[i], ws->scale_sigma[level]);
        if (!may_be_line(ws, c)) continue;
        if (!add_component(ws, c)) break;
    }
    if (ws->params->second_start) curved_peaks(ws);
    else ws->n_curved = 0;
    fit_touched(ws, TOL_SEARCH, COUPLING);
    prune(ws, TOL_SEARCH);
}

/* Adds, splits and removes components until no change is kept. */
static void refine_best(gl_workspace *ws)
{
    pursue(ws);
    double score = ws->order ? SPLIT_SCORE_CORRELATED : SPLIT_SCORE;
    for (int round = 0; round < ws->params->max_refine_iter; round++) {
        if (!split_all(ws, score, SPLIT_GAIN)) break;
        if (!pursue(ws)) break;
    }
    if (ws->params->second_start && add_beside(ws)) split_all(ws, score, SPLIT_GAIN);
    remove_redundant(ws);
}

/* The model of the k given components, three numbers each, without those that are not possible in this spectrum. */
static void start_from_given(gl_workspace *ws, const double *given, int64_t k)
{
    double largest = 1.0;
    for (int i = 0; i < ws->n; i++) largest = fmax(largest, fabs(ws->y[i]));
    set_model(ws, NULL, 0);
    for (int64_t i = 0; i < k; i++) {
        Comp c = {given[3 * i] / ws->unit, given[3 * i + 1], given[3 * i + 2]};
        if (c.a < INFINITY) c.a = fmin(c.a, START_HEIGHT * largest);
        if (!(c.a > 0.0 && c.a < INFINITY && c.mu >= 0.0 && c.mu < ws->n && c.s >= WIDTH_MIN && c.s <= 0.5 * ws->n))
            continue;
        if (!add_component(ws, c)) break;
    }
    ws->n_curved = 0;
    fit_touched(ws, TOL_SEARCH, COUPLING);
    prune(ws, TOL_SEARCH);
}

/* The search, or a fit of only the k given components. */
static void decompose_best(gl_workspace *ws, const double *given, int64_t k)
{
    ws->n_dead = ws->searched = 0;
    if (given) {
        start_from_given(ws, given, k);
    } else {
        start_from_peaks(ws);
        refine_best(ws);
    }
    if (ws->n_curved > ws->n_comp && !out_of_budget(ws)) {
        double cost = chi_square(ws) + SECOND_COST * ws->n_comp;
        int n_first = ws->n_comp;
        memcpy(ws->guess, ws->comp, (size_t)n_first * sizeof *ws->guess);
        set_model(ws, ws->curved, ws->n_curved);
        fit_touched(ws, TOL_SEARCH, COUPLING);
        prune(ws, TOL_SEARCH);
        refine_best(ws);
        if (!(chi_square(ws) + SECOND_COST * ws->n_comp < cost)) set_model(ws, ws->guess, n_first);
    }
    polish(ws);
    int before = ws->n_comp;
    prune(ws, TOL_FINAL);
    if (ws->n_comp != before) polish(ws);
}
#endif
