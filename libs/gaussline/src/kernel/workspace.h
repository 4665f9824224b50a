/* Workspace of one thread: every buffer that the fit of a spectrum needs, allocated once for each batch.
 *
 * All amplitudes are in units of the noise, so that sums of squares are chi-square. The residual of the whole model is
 * kept in ws->residual; a fit changes only the channels of one cluster of components.
 */
#ifndef WORKSPACE_H
#define WORKSPACE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "gaussline.h"
#include "persistence.h"
#include "simd.h"
#include "watch.h"

#define SQRT_PI 1.7724538509055160
#define SQRT_2PI 2.5066282746310002
#define PI_QUARTER 1.3313353638003897
#define FWHM_PER_SIGMA 2.3548200450309493

/* Channel-by-component evaluations of one spectrum: about half a second on one core. */
#define WORK_LIMIT 2e8
/* Work between two looks at the limits within one step of a fit: about a millisecond. */
#define CHECK_WORK 1e6
/* Wall-clock time after which the thread's clock is read for the first time. Most spectra have ended by then. */
#define FIRST_LOOK_S 1e-3
/* Share of the limits that the uncertainties may take in addition. */
#define GRACE 0.3
/* Cost of a factorisation in the same unit, for each cubed parameter. */
#define FACTOR_WORK (1.0 / 16.0)

/* Zero channels on either side of every row, which may be read. */
#define ROW_MARGIN 16
/* Highest order of the noise's autoregressive model, and lags of its correlation that are kept. */
#define ORDER_MAX 7
#define LAGS 32

/* Least width of a component, channels (phspectra's bound). */
#define WIDTH_MIN 0.3
/* Largest amplitude of a component, noise units: a thousand times that of any channel. With it and WIDTH_MIN, no
 * exponent of bell_add() leaves the range of vexp(). */
#define AMPLITUDE_MAX 1e18

/* Coefficients of the polynomial baseline. */
#define BASE_TERMS GL_BASELINE_TERMS

/* Scales of the search; enough for 2^30 channels. */
#define SCALES_LIMIT 32

typedef struct {
    double a, mu, s;
} Comp;

typedef struct {
    int lo, hi; /* multiples of VW, hi exclusive */
} Window;

typedef struct {
    double a[5]; /* sum of w g^2 z^m */
    double c[5]; /* sum of w g z^m residual */
} Moments;

struct gl_workspace {
    int n;        /* channels */
    int n_pad;    /* rounded up to whole vectors; the channels beyond n have weight zero */
    int capacity; /* components the workspace has room for */
    int n_valid;  /* channels that are not blank */
    int uniform;  /* every channel that is not blank has weight one */
    int plain;    /* uniform, and no channel is blank */
    double unit;  /* noise of the loaded spectrum, input units */
    double work;
    double work_limit;
    double checked_work;   /* at the latest look at the limits */
    double start_s;        /* wall-clock time at which the spectrum was loaded */
    double budget_s;       /* processor time that it may take */
    double deadline_s;     /* processor time of the thread at which that is used up; infinite before the first look */
    double look_s;         /* wall-clock time before which it cannot be used up */
    int out_of_time, out_of_work;
    gl_batch_watch *watch; /* ends the batch early */
    int is_caller;         /* this thread called for the batch, and asks whether to end it */
    int not_finite;  /* a fit came to a number that is not finite */
    const gl_params *params;
    /* spectrum, residual, weight and fit buffers, n_pad items each */
    double *y, *w, *residual, *base, *trial, *other_trial, *saved_residual;
    double *bells;         /* capacity rows of n_pad: the bell of each member of the cluster that is being fitted */
    double *valid, *scratch;
    double *weight_sum;    /* n + 1: sum of the weights before each channel */
    double *root_weight;   /* square root of the weight: one over the local noise, in units of the noise */
    unsigned char *mask;
    /* correlated noise */
    int order;             /* of the autoregressive model; zero for white noise */
    double predictors[ORDER_MAX + 1][ORDER_MAX + 1]; /* row of the whitening for each order */
    double whitened_variance; /* of the measured noise after the whitening, less than one by the floor */
    double error_scale;    /* factor of the errors because the correlation was estimated from the spectrum */
    double lags[LAGS];     /* correlation of the noise */
    double *precision;     /* inverse covariance of neighbours, lags -WHITENING_REACH.. */
    double zero_frequency; /* effective channels divided by channels, for a slow signal */
    double response_fwhm;  /* of the response that the correlation of the noise implies; zero for white noise */
    double fwhm_min;       /* least FWHM of a component, channels */
    double mf_snr_min;     /* least matched-filter signal-to-noise, for the independent channels there are */
    double *taps;          /* rows of the whitening: coefficient of the channel t before, t = 0..order */
    double *white, *other_white; /* whitened residuals of trial and other_trial */
    double *pull;          /* the residual whitened twice; gradients are computed from it */
    double *good;          /* channels without signal */
    Ridge *ridges;
    Peak *peaks;
    /* scale space */
    double *scale_rows;
    int scale_pad, scale_stride, scales_max;
    double scale_inv_norm[SCALES_LIMIT], scale_sigma[SCALES_LIMIT];
    double scale_overlap[SCALES_LIMIT][LAGS];            /* product of each smoothing kernel with itself, shifted */
    double base_share[SCALES_LIMIT], base_inv_norm[SCALES_LIMIT]; /* S/N beside the baseline, and the search's norm */
    double start_inv_norm[SCALES_LIMIT], search_inv_norm[SCALES_LIMIT]; /* the first one's, of the noise at hand */
    /* the test against the baseline */
    double *level, *tilt;  /* a constant and a slope, times the inverse covariance of the noise */
    double level_power, cross_power, tilt_power; /* their products with the constant and the slope */
    int has_basis;         /* whether these are of the spectrum at hand */
    /* the polynomial baseline that is fitted with the lines */
    int n_base;            /* its coefficients; zero: none is fitted, and there is no memory for it */
    int base_first;        /* first channel with data */
    double base_step;      /* of the place, -1 to 1 over the channels with data */
    double *base_value[BASE_TERMS];          /* the powers of the place */
    double *base_pull[BASE_TERMS];           /* times the inverse covariance of the noise */
    double base_factor[BASE_TERMS * BASE_TERMS]; /* Cholesky factor of their products */
    double base_start[BASE_TERMS];           /* coefficients of the first baseline, which y is without */
    double base_coef[BASE_TERMS], saved_base_coef[BASE_TERMS]; /* of the rest, which the residual is without */
    double base_rest[BASE_TERMS];            /* products of the channels that the present fit does not change */
    double *levelled;                        /* the trial without its baseline */
    double *base_cross;                      /* products of parameters and powers */
    double *depth_rows;    /* two rows of the smoothed residual */
    double *snr;           /* n_pad: best matched-filter S/N of each channel */
    double *snr_scale;     /* n_pad: the scale it was found at */
    /* model */
    Comp *comp, *saved, *guess;
    Comp *dead;            /* components that validation removed, so that the search does not add them again */
    unsigned char *tested, *dirty, *unconverged, *saved_unconverged, *saved_tested;
    Comp *curved;          /* the second start */
    int n_curved;
    int searched, saved_searched; /* whether the scale space is that of the current residual */
    int n_saved, n_dead, full;
    Comp *params_now, *params_try;
    int *cluster, *label, *member;
    Window *window;
    Moments *moments;
    /* solver, 3 * capacity squared or linear */
    double *normal, *system, *second, *gradient, *scale, *step, *inverse;
    unsigned char *frozen;
    int *envelope;
    double *covariance;    /* capacity rows of 4: variances of a, mu, s and the covariance of a and s */
    unsigned char *covariance_bad;
    int n_comp;
    void *memory;
};

/* Whether the processor time of the spectrum is used up. It is at most the wall-clock time, which is cheap to read, so
 * the thread's clock is read only when enough of that has passed. The first reading starts the measurement. */
static int is_time_up(gl_workspace *ws, double now)
{
    if (now < ws->look_s) return 0;
    double used = thread_seconds();
    if (ws->deadline_s == INFINITY) ws->deadline_s = used + ws->budget_s - fmin(now - ws->start_s, FIRST_LOOK_S);
    ws->look_s = now + (ws->deadline_s - used);
    return used > ws->deadline_s;
}

INLINE int is_ended(const gl_workspace *ws) { return ws->out_of_time || ws->out_of_work || watch_ended(ws->watch); }

/* Whether the spectrum has to end: its time or its work is used up, or the batch ends. */
static int out_of_budget(gl_workspace *ws)
{
    double now = seconds_now();
    ws->checked_work = ws->work;
    if (ws->work > ws->work_limit) ws->out_of_work = 1;
    if (!ws->out_of_time) ws->out_of_time = is_time_up(ws, now);
    if (ws->is_caller) watch_ask(ws->watch, now);
    return is_ended(ws);
}

/* The same, for loops of many short steps: looks at the limits only after CHECK_WORK. */
INLINE int out_of_budget_now(gl_workspace *ws)
{
    return is_ended(ws) || (ws->work - ws->checked_work > CHECK_WORK && out_of_budget(ws));
}

static void start_budget(gl_workspace *ws, double start, double budget_s)
{
    ws->work = ws->checked_work = 0.0;
    ws->work_limit = WORK_LIMIT;
    ws->start_s = start;
    ws->budget_s = budget_s;
    ws->deadline_s = INFINITY;
    ws->look_s = start + fmin(budget_s, FIRST_LOOK_S);
    ws->out_of_time = ws->out_of_work = 0;
}

/* Gives the end of a spectrum, its uncertainties, a further share of both limits. */
static void extend_budget(gl_workspace *ws)
{
    ws->work_limit = WORK_LIMIT * (1.0 + GRACE);
    ws->deadline_s += GRACE * ws->budget_s;
    ws->budget_s *= 1.0 + GRACE;
    ws->look_s = 0.0;
    ws->out_of_time = ws->out_of_work = 0;
}

/* Row of n_pad items between their margins. */
INLINE double *tap_row(const gl_workspace *ws, int t) { return ws->taps + (ptrdiff_t)t * (ws->n_pad + 2 * ROW_MARGIN); }

/* lo if x is NaN. */
INLINE double clamp(double x, double lo, double hi) { return x > lo ? x < hi ? x : hi : lo; }
#endif
