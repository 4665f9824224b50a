/* The preset `compatible`: the steps of phspectra 1.0.2 (persistent peaks, validation, refinement judged by AICc) with
 * this kernel's solver, then further steps and a second start, each judged by AICc too. */
#ifndef COMPATIBLE_H
#define COMPATIBLE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "best.h"
#include "model.h"
#include "persistence.h"
#include "search.h"
#include "workspace.h"


/* Predicted fall of chi-square below which a fit stops: AICc judges each step, and changes by less than this. */
#define TOL_COMPATIBLE 1e-3
/* Score and fall of chi-square of a split that AICc can accept (three parameters cost a little over 6). */
#define AICC_SPLIT_SCORE 3.0
#define AICC_SPLIT_GAIN 6.5
/* Residual candidates may fall short of mf_snr_min by this factor; AICc decides. */
#define AICC_SNR 0.9
/* Without a component chi-square rises by the square of its matched-filter S/N. Below this one AICc falls. */
#define WORTHLESS_SNR 2.0

static double aicc_of(double chi2, double unit, int n, int k)
{
    if (n <= k + 1) return INFINITY;
    double per_channel = chi2 / n > 1e-300 ? chi2 / n : 1e-300;
    return n * (log(per_channel) + 2.0 * log(unit)) + 2.0 * k + (2.0 * k * k + 2.0 * k) / (n - k - 1.0);
}

static double model_aicc(const gl_workspace *ws)
{
    return aicc_of(chi_square(ws), 1.0, ws->n_valid, 3 * ws->n_comp + ws->n_base);
}

static Comp peak_component(const gl_workspace *ws, const double *y, Peak peak)
{
    double width = 1.0;
    if (peak.saddle >= 0 && peak.death > 0.0 && peak.saddle != peak.index && peak.birth > peak.death)
        width = abs(peak.index - peak.saddle) / sqrt(2.0 * log(peak.birth / peak.death));
    double height = ws->root_weight[peak.index] > 0.0 ? y[peak.index] / ws->root_weight[peak.index] : 0.0;
    return (Comp){height > 1e-10 ? height : 1e-10, peak.index, clamp(width, WIDTH_MIN, 0.5 * ws->n)};
}

/* Puts the valid peaks of the residual into ws->guess. Returns how many. */
static int residual_peaks(gl_workspace *ws)
{
    for (int i = 0; i < ws->n; i++) ws->scratch[i] = ws->residual[i] * ws->root_weight[i];
    int count = persistence_peaks(ws->scratch, ws->n, ws->params->snr_min, ws->ridges, ws->peaks, ws->n / 2 + 2);
    int good = 0;
    for (int i = 0; i < count && good < ws->capacity; i++) {
        Comp c = peak_component(ws, ws->scratch, ws->peaks[i]);
        if (is_valid(ws, c)) ws->guess[good++] = c;
    }
    return good;
}

static void fit_all(gl_workspace *ws)
{
    touch_all(ws);
    fit_touched(ws, TOL_COMPATIBLE, COUPLING);
}

static int first_blended_pair(const gl_workspace *ws, int *first, int *second)
{
    for (int i = 0; i < ws->n_comp; i++)
        for (int j = i + 1; j < ws->n_comp; j++)
            if (are_blended(ws, ws->comp[i], ws->comp[j])) {
                *first = i;
                *second = j;
                return 1;
            }
    return 0;
}

/* Fits the changed model and keeps it if AICc falls. */
static int accept_if_better(gl_workspace *ws, double *aicc)
{
    fit_all(ws);
    double now = model_aicc(ws);
    if (now < *aicc) {
        *aicc = now;
        return 1;
    }
    restore_model(ws);
    return 0;
}

static int refine(gl_workspace *ws, double *aicc)
{
    int changed = 0;
    int found = residual_peaks(ws);
    if (found) {
        keep_model(ws);
        for (int i = 0; i < found; i++)
            if (!add_component(ws, ws->guess[i])) break;
        changed |= accept_if_better(ws, aicc);
    }
    int dip = -1;
    double deepest = -ws->params->neg_thresh;
    for (int i = 0; i < ws->n; i++)
        if (ws->residual[i] * ws->root_weight[i] < deepest) {
            deepest = ws->residual[i] * ws->root_weight[i];
            dip = i;
        }
    if (dip >= 0) {
        int widest = -1;
        for (int i = 0; i < ws->n_comp; i++)
            if (fabs(ws->comp[i].mu - dip) < 3.0 * ws->comp[i].s && (widest < 0 || ws->comp[i].s > ws->comp[widest].s))
                widest = i;
        if (widest >= 0) {
            Comp c = ws->comp[widest];
            double half = clamp(0.5 * c.s, WIDTH_MIN, 0.5 * ws->n);
            keep_model(ws);
            remove_component(ws, widest);
            int fits = add_component(ws, (Comp){0.7 * c.a, c.mu - 0.5 * c.s, half}) &&
                       add_component(ws, (Comp){0.7 * c.a, c.mu + 0.5 * c.s, half});
            if (fits) changed |= accept_if_better(ws, aicc);
            else restore_model(ws);
        }
    }
    int i, j;
    if (first_blended_pair(ws, &i, &j)) {
        Comp a = ws->comp[i], b = ws->comp[j];
        double p = a.a * a.s, q = b.a * b.s;
        if (!(p + q > 0.0)) p = q = 1.0; /* the fit has reduced both to zero */
        keep_model(ws);
        remove_component(ws, j);
        remove_component(ws, i);
        add_component(ws, (Comp){a.a + b.a, (a.mu * p + b.mu * q) / (p + q), (a.s * p + b.s * q) / (p + q)});
        changed |= accept_if_better(ws, aicc);
    }
    return changed;
}

/* Adds components that the matched filter still finds in the residual, one at a time, while AICc falls. */
static int pursue_by_aicc(gl_workspace *ws)
{
    int added = 0;
    scale_space(ws);
    while (!out_of_budget(ws)) {
        Candidate c = strongest(ws);
        if (c.snr < AICC_SNR * ws->mf_snr_min) break;
        suppress(ws, c.channel, ws->scale_sigma[c.scale] + 1.0);
        double aicc = model_aicc(ws);
        keep_model(ws);
        if (!add_component(ws, candidate_component(ws, c))) break;
        fit_touched(ws, TOL_COMPATIBLE, COUPLING);
        if (model_aicc(ws) < aicc) added++;
        else restore_model(ws);
    }
    return added;
}

/* Makes splits and additions that lower AICc, until there are none. */
static void lower_aicc(gl_workspace *ws)
{
    for (int round = 0; round < ws->params->max_refine_iter; round++) {
        int changed = split_all(ws, AICC_SPLIT_SCORE, AICC_SPLIT_GAIN);
        changed += pursue_by_aicc(ws);
        if (!changed) break;
    }
}

/* Removes the components that AICc does not pay for, down to those of amplitude zero. Returns how many. */
static int remove_worthless(gl_workspace *ws)
{
    int removed = 0;
    for (int i = ws->n_comp - 1; i >= 0; i--) {
        if (local_sensitivity(ws, ws->comp[i]) * matched_filter_snr(ws, ws->comp[i]) >= WORTHLESS_SNR) continue;
        remove_component(ws, i);
        removed++;
    }
    return removed;
}

static void decompose_compatible(gl_workspace *ws)
{
    for (int i = 0; i < ws->n; i++) ws->scratch[i] = ws->residual[i] * ws->root_weight[i];
    int count = persistence_peaks(ws->scratch, ws->n, ws->params->beta, ws->ridges, ws->peaks, ws->n / 2 + 2);
    if (!count) return;
    for (int i = 0; i < count; i++) {
        Comp c = peak_component(ws, ws->scratch, ws->peaks[i]);
        if (!add_component(ws, c)) break;
    }
    fit_all(ws);
    int before = ws->n_comp;
    for (int i = ws->n_comp - 1; i >= 0; i--)
        if (!is_valid(ws, ws->comp[i])) remove_component(ws, i);
    if (ws->n_comp != before) fit_all(ws);
    if (!ws->n_comp) return;
    double aicc = model_aicc(ws);
    int first, second;
    if (residual_peaks(ws) || first_blended_pair(ws, &first, &second))
        for (int round = 0; round < ws->params->max_refine_iter && !out_of_budget(ws); round++)
            if (!refine(ws, &aicc)) break;
    lower_aicc(ws);
    Comp *first_model = ws->guess; /* no peak search runs below */
    int n_first = ws->n_comp;
    memcpy(first_model, ws->comp, (size_t)n_first * sizeof *first_model);
    double first_aicc = model_aicc(ws);
    if (!out_of_budget(ws)) {
        set_model(ws, NULL, 0);
        start_from_peaks(ws);
        lower_aicc(ws);
        if (!(model_aicc(ws) < first_aicc)) set_model(ws, first_model, n_first);
    }
    polish(ws);
    if (remove_worthless(ws)) polish(ws);
}
#endif
