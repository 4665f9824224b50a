/* Matched-filter search of the residual: the a-trous B3-spline scale space (Starck & Murtagh 2006), whose smoothing
 * widths 1, 2.2, 4.6, 9.2, ... channels are close enough that no Gaussian loses more than 4 % of its signal-to-noise. */
#ifndef SEARCH_H
#define SEARCH_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bell.h"
#include "correlation.h"
#include "polynomial.h"
#include "scales.h"
#include "workspace.h"


/* Least share of the S/N beside a baseline for which the search is adapted: a wider bell cannot be found. */
#define BASE_SHARE_SEARCH 0.3

typedef struct {
    double snr;
    int channel, scale;
} Candidate;

/* Row zero of the scale space: the residual. If all weights are one or zero, blank channels are interpolated. Otherwise
 * the residual is in units of the local noise, and blank channels are zero. */
static void set_bridged_row(gl_workspace *ws)
{
    double *in = scale_row(ws, 0);
    if (ws->uniform)
        memcpy(in, ws->residual, (size_t)ws->n_pad * sizeof *in);
    else
        for (int i = 0; i < ws->n_pad; i += VW) vstore(in + i, vload(ws->residual + i) * vload(ws->root_weight + i));
}

/* Row zero of the search: the residual in units of the local noise, so that blank channels are zero. Under correlated
 * noise, the residual times the inverse covariance. */
static void set_search_row(gl_workspace *ws)
{
    double *in = scale_row(ws, 0);
    if (ws->order) {
        set_pull(ws, ws->residual);
        for (int i = 0; i < ws->n_pad; i++) in[i] = ws->root_weight[i] > 0.0 ? ws->pull[i] / ws->root_weight[i] : 0.0;
    } else {
        for (int i = 0; i < ws->n_pad; i += VW) vstore(in + i, vload(ws->residual + i) * vload(ws->root_weight + i));
    }
}

/* Norms of the scales of the search: those of the noise at hand, beside the baseline. */
INLINE const double *search_norms(const gl_workspace *ws)
{
    if (ws->n_base) return ws->base_inv_norm;
    return ws->order ? ws->search_inv_norm : ws->scale_inv_norm;
}

/* A fitted baseline takes a part of a wide bell and of the noise at its scale: the response of the residual to a bell
 * has a smaller variance, and both are known from the share of its S/N that the baseline leaves in the middle of the
 * spectrum. Nearer to an end it leaves less. */
static void set_base_norms(gl_workspace *ws)
{
    const double *norms = ws->order ? ws->search_inv_norm : ws->scale_inv_norm;
    for (int j = 0; j < ws->scales_max; j++) {
        Comp middle = {1.0, 0.5 * (ws->n - 1), ws->scale_sigma[j]};
        ws->base_share[j] = fmax(share_beside_baseline(ws, middle), BASE_SHARE_SEARCH);
        ws->base_inv_norm[j] = norms[j] / ws->base_share[j];
    }
}

/* Whether any matched-filter S/N of the residual reaches the threshold. It costs less than the complete scale space,
 * which most empty spectra do not need. */
static int has_candidate(gl_workspace *ws, double threshold)
{
    vi found = {0};
    set_search_row(ws);
    for (int j = 0; j < ws->scales_max; j++) {
        const double *from = scale_row(ws, j);
        double *out = scale_row(ws, j + 1);
        const vd inv = vset(search_norms(ws)[j]), least = vset(threshold);
        for (int i = 0; i < ws->n_pad; i += VW) {
            vd smooth = smooth_at(from + i, 1 << j);
            vstore(out + i, smooth);
            found |= smooth * inv >= least;
        }
    }
    return has_lane(found);
}

/* Fills the scale space of the residual, ws->snr and ws->snr_scale. */
static void scale_space(gl_workspace *ws)
{
    const double *inv_norm = search_norms(ws);
    set_search_row(ws);
    for (int i = 0; i < ws->n_pad; i += VW) {
        vstore(ws->snr + i, vset(-1e300));
        vstore(ws->snr_scale + i, vset(0.0));
    }
    for (int j = 0; j < ws->scales_max; j++) {
        const double *from = scale_row(ws, j);
        double *out = scale_row(ws, j + 1);
        const vd inv = vset(inv_norm[j]), label = vset(j);
        for (int i = 0; i < ws->n_pad; i += VW) {
            vd smooth = smooth_at(from + i, 1 << j);
            vstore(out + i, smooth);
            vd t = smooth * inv, best = vload(ws->snr + i), where = vload(ws->snr_scale + i);
            vi up = t > best;
            vstore(ws->snr + i, (vd)(((vi)t & up) | ((vi)best & ~up)));
            vstore(ws->snr_scale + i, (vd)(((vi)label & up) | ((vi)where & ~up)));
        }
    }
    for (int i = ws->n; i < ws->n_pad; i++) ws->snr[i] = -1e300;
    ws->searched = 1;
}

/* The candidate with the highest remaining matched-filter S/N. If there is none, its snr is below threshold. */
static Candidate strongest(const gl_workspace *ws)
{
    vd best = vset(-1e300);
    for (int i = 0; i < ws->n_pad; i += VW) {
        vd t = vload(ws->snr + i);
        vi up = t > best;
        best = (vd)(((vi)t & up) | ((vi)best & ~up));
    }
    double top = best[0];
    for (int j = 1; j < VW; j++) top = best[j] > top ? best[j] : top;
    int channel = 0;
    while (channel < ws->n - 1 && ws->snr[channel] != top) channel++;
    return (Candidate){top, channel, (int)ws->snr_scale[channel]};
}

static void suppress(gl_workspace *ws, int channel, double reach)
{
    int from = (int)(channel - reach), to = (int)(channel + reach) + 1;
    from = from < 0 ? 0 : from;
    to = to > ws->n ? ws->n : to;
    for (int i = from; i < to; i++) ws->snr[i] = -1e300;
}

/* Component at a candidate: width from a parabola through the S/N of the neighbouring scales, amplitude from the S/N. */
static Comp candidate_component(const gl_workspace *ws, Candidate c)
{
    int j = c.scale;
    const double *inv_norm = search_norms(ws);
    double octave = 0.0;
    if (j > 0 && j + 1 < ws->scales_max) {
        double below = scale_row(ws, j)[c.channel] * inv_norm[j - 1];
        double above = scale_row(ws, j + 2)[c.channel] * inv_norm[j + 1];
        double bend = below + above - 2.0 * c.snr;
        if (bend < 0.0) octave = clamp(0.5 * (below - above) / bend, -0.5, 0.5);
    }
    double width = ws->scale_sigma[j] * pow(2.0, octave);
    double root = ws->root_weight[c.channel];
    double unit = ws->order ? sqrt(bell_power(ws, width)) : sqrt(width) * PI_QUARTER;
    if (ws->n_base) unit *= ws->base_share[j];
    double height = c.snr / (unit * (root > 0.0 ? root : 1.0));
    return (Comp){height, c.channel, clamp(width, 2.0 * WIDTH_MIN, 0.4 * ws->n)};
}
#endif
