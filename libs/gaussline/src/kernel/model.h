/* Changes of the model between fits: add, remove, validate, keep and restore, refit what was touched. */
#ifndef MODEL_H
#define MODEL_H

#include <math.h>
#include <string.h>

#include "baseline.h"
#include "bell.h"
#include "correlation.h"
#include "polynomial.h"
#include "solver.h"
#include "workspace.h"


/* Further fits of all clusters beside the baseline, and the fall of chi-square below which there are no more. */
#define BASE_ROUNDS 4
#define BASE_FALL 1e-3

INLINE double matched_filter_snr(const gl_workspace *ws, Comp c)
{
    return ws->order ? c.a * sqrt(bell_power(ws, c.s)) : c.a * sqrt(c.s) * PI_QUARTER;
}

/* Whether a component is wide enough for the data, on the spectrum, and significant: by its matched-filter S/N, and,
 * if it is low, against the baseline. For `compatible` a low component is never valid, as for phspectra. */
static int is_valid(gl_workspace *ws, Comp c)
{
    if (!(FWHM_PER_SIGMA * c.s >= ws->fwhm_min && c.mu >= 0.0 && c.mu < ws->n)) return 0;
    double snr = local_sensitivity(ws, c) * matched_filter_snr(ws, c);
    if (snr < ws->mf_snr_min || (ws->n_base && snr * share_beside_baseline(ws, c) < ws->mf_snr_min)) return 0;
    if (!is_low(ws, c)) return 1;
    return ws->params->preset == GL_PRESET_BEST && stands_out(ws, c);
}

INLINE int are_blended(const gl_workspace *ws, Comp a, Comp b)
{
    double narrow = a.s < b.s ? a.s : b.s;
    return fabs(a.mu - b.mu) < ws->params->f_sep * FWHM_PER_SIGMA * narrow;
}

INLINE int are_coupled(Comp a, Comp b, double coupling) { return fabs(a.mu - b.mu) < coupling * (a.s + b.s); }

static void residual_add(gl_workspace *ws, Comp c, double factor)
{
    Window win = window_of(c, 0, ws->n_pad);
    ws->work += win.hi - win.lo;
    ws->searched = 0;
    bell_add(c, factor * c.a, win, ws->bells, ws->residual);
}

/* Adds a component, with its parameters within their bounds. 0 if the model is full: it is at the limit, or has as many parameters as AICc can judge. */
static int add_component(gl_workspace *ws, Comp c)
{
    if (ws->n_comp >= ws->params->max_components || 3 * ws->n_comp + ws->n_base + 4 >= ws->n_valid) {
        ws->full = 1;
        return 0;
    }
    c = within_bounds(ws, c);
    ws->comp[ws->n_comp] = c;
    ws->dirty[ws->n_comp] = 1;
    ws->unconverged[ws->n_comp] = ws->tested[ws->n_comp] = 0;
    ws->n_comp++;
    residual_add(ws, c, -1.0);
    return 1;
}

/* Removes component k and marks the components that it was solved with. */
static void remove_component(gl_workspace *ws, int k)
{
    Comp gone = ws->comp[k];
    residual_add(ws, gone, 1.0);
    int tail = ws->n_comp - k - 1;
    memmove(ws->comp + k, ws->comp + k + 1, (size_t)tail * sizeof *ws->comp);
    memmove(ws->dirty + k, ws->dirty + k + 1, (size_t)tail);
    memmove(ws->unconverged + k, ws->unconverged + k + 1, (size_t)tail);
    memmove(ws->tested + k, ws->tested + k + 1, (size_t)tail);
    ws->n_comp--;
    for (int i = 0; i < ws->n_comp; i++)
        if (are_coupled(gone, ws->comp[i], COUPLING)) ws->dirty[i] = 1;
}

static double chi_square(const gl_workspace *ws)
{
    if (ws->order) return whiten(ws, ws->residual, 0, ws->n_pad, ws->white);
    return weighted_square(ws->w, ws->residual, 0, ws->n_pad);
}

static void keep_model(gl_workspace *ws)
{
    ws->n_saved = ws->n_comp;
    ws->saved_searched = ws->searched;
    memcpy(ws->saved, ws->comp, (size_t)ws->n_comp * sizeof *ws->comp);
    memcpy(ws->saved_unconverged, ws->unconverged, (size_t)ws->n_comp);
    memcpy(ws->saved_tested, ws->tested, (size_t)ws->n_comp);
    memcpy(ws->saved_residual, ws->residual, (size_t)ws->n_pad * sizeof(double));
    memcpy(ws->saved_base_coef, ws->base_coef, sizeof ws->base_coef);
}

static void restore_model(gl_workspace *ws)
{
    ws->n_comp = ws->n_saved;
    ws->searched = ws->saved_searched;
    memcpy(ws->comp, ws->saved, (size_t)ws->n_comp * sizeof *ws->comp);
    memcpy(ws->unconverged, ws->saved_unconverged, (size_t)ws->n_comp);
    memcpy(ws->tested, ws->saved_tested, (size_t)ws->n_comp);
    memset(ws->dirty, 0, (size_t)ws->n_comp);
    memcpy(ws->residual, ws->saved_residual, (size_t)ws->n_pad * sizeof(double));
    memcpy(ws->base_coef, ws->saved_base_coef, sizeof ws->base_coef);
}

/* Members of the cluster of component seed, by breadth-first search; returns how many. */
static int cluster_of(gl_workspace *ws, int seed, double coupling, int *members)
{
    int count = 1;
    members[0] = seed;
    ws->label[seed] = 1;
    for (int head = 0; head < count; head++)
        for (int i = 0; i < ws->n_comp; i++)
            if (!ws->label[i] && are_coupled(ws->comp[members[head]], ws->comp[i], coupling)) {
                ws->label[i] = 1;
                members[count++] = i;
            }
    return count;
}

/* Fits every cluster that holds a touched component, and the baseline. Once a limit has ended the spectrum, no fit of
 * a cluster is begun. */
static void fit_touched(gl_workspace *ws, double tolerance, double coupling)
{
    memset(ws->label, 0, (size_t)ws->n_comp * sizeof *ws->label);
    for (int i = 0; i < ws->n_comp; i++) {
        if (!ws->dirty[i]) continue;
        if (ws->label[i]) continue;
        if (is_ended(ws)) {
            ws->unconverged[i] = 1;
            continue;
        }
        int k = cluster_of(ws, i, coupling, ws->cluster);
        for (int j = 0; j < k; j++) ws->dirty[ws->cluster[j]] = ws->tested[ws->cluster[j]] = 0;
        fit_cluster(ws, ws->cluster, k, tolerance);
        ws->searched = 0;
    }
    level_residual(ws);
}

static void touch_all(gl_workspace *ws) { memset(ws->dirty, 1, (size_t)ws->n_comp); }

/* Replaces the model by k given components (none if k is zero). */
static void set_model(gl_workspace *ws, const Comp *components, int k)
{
    memcpy(ws->residual, ws->y, (size_t)ws->n_pad * sizeof(double));
    memset(ws->base_coef, 0, sizeof ws->base_coef);
    ws->n_comp = ws->n_dead = ws->searched = 0;
    for (int i = 0; i < k; i++) add_component(ws, components[i]);
}

/* The final solution: fits every cluster to the final tolerance, again if a neighbouring cluster's wing has changed. */
static void polish(gl_workspace *ws)
{
    touch_all(ws);
    fit_touched(ws, TOL_FINAL, COUPLING);
    for (int i = 0; i < ws->n_comp; i++)
        for (int j = 0; j < i; j++)
            if (!are_coupled(ws->comp[i], ws->comp[j], COUPLING) &&
                are_coupled(ws->comp[i], ws->comp[j], FINAL_COUPLING))
                ws->dirty[i] = ws->dirty[j] = 1;
    fit_touched(ws, TOL_FINAL, FINAL_COUPLING);
    for (int round = 0; round < BASE_ROUNDS && ws->n_base && ws->n_comp && !is_ended(ws); round++) {
        double before = chi_square(ws); /* the baseline couples all clusters */
        touch_all(ws);
        fit_touched(ws, TOL_FINAL, FINAL_COUPLING);
        if (!(before - chi_square(ws) > BASE_FALL)) break;
    }
}
#endif
