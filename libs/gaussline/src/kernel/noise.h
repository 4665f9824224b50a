/* Estimates the noise of a spectrum from its channels: the signal-masked estimate of Riener et al. 2019 (section
 * 3.1.1), with the constants of phspectra 1.0.2 so that both use the same noise. */
#ifndef NOISE_H
#define NOISE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simd.h"


/* Runs of three or more positive channels are taken as signal and masked with two channels on either side. */
/* The median absolute deviation of a normal distribution in its sigmas, and the reciprocal, rounded as in phspectra. */
#define MAD_OF_SIGMA 0.6745
#define MAD_TO_SIGMA 1.4826
/* Clip at this many median-absolute-deviation sigmas. */
#define NOISE_CLIP 5.0
/* With fewer channels than this after the clipping, the plain median absolute deviation is used. */
#define NOISE_MIN_CHANNELS 5
/* Partition passes before the selection changes to a sort, so that no input takes quadratic time. */
#define SELECT_PASSES 64

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* k-th smallest of a[0..n), which is reordered so that a[0..k) are not larger. Branch-free partition. */
static double select_kth(double *a, int n, int k)
{
    int lo = 0, hi = n;
    for (int pass = 0; hi - lo > 1; pass++) {
        if (pass == SELECT_PASSES) {
            qsort(a + lo, (size_t)(hi - lo), sizeof *a, compare_doubles);
            return a[k];
        }
        double x = a[lo], y = a[lo + (hi - lo) / 2], z = a[hi - 1];
        double pivot = x < y ? (y < z ? y : (x < z ? z : x)) : (x < z ? x : (y < z ? z : y));
        int less = lo;
        for (int i = lo; i < hi; i++) {
            double v = a[i];
            a[i] = a[less];
            a[less] = v;
            less += v < pivot;
        }
        if (k < less) {
            hi = less;
            continue;
        }
        int equal = less;
        for (int i = less; i < hi; i++) {
            double v = a[i];
            a[i] = a[equal];
            a[equal] = v;
            equal += v <= pivot;
        }
        if (k < equal) return pivot;
        lo = equal;
    }
    return a[k];
}

static double median_in_place(double *a, int n)
{
    int half = n / 2;
    double upper = select_kth(a, n, half);
    if (n & 1) return upper;
    double lower = a[0];
    for (int i = 1; i < half; i++) lower = a[i] > lower ? a[i] : lower;
    return 0.5 * (lower + upper);
}

static double noise_simple(const double *y, int n, double *scratch)
{
    memcpy(scratch, y, (size_t)n * sizeof *y);
    double median = median_in_place(scratch, n);
    for (int i = 0; i < n; i++) scratch[i] = fabs(y[i] - median);
    return median_in_place(scratch, n) / MAD_OF_SIGMA;
}

/* y[0..n) are the channels that are not blank; marks holds 3 * (n + 8) bytes and scratch n padded to whole vectors.
 * Returns zero if the noise cannot be estimated. */
static double noise_estimate(const double *y, int n, unsigned char *marks, double *scratch)
{
    /* a channel is masked when a run of three starts at most four channels before it or two behind it */
    unsigned char *positive = marks + 4, *start = marks + (n + 8) + 4;
    memset(marks, 0, 2 * ((size_t)n + 8));
    for (int i = 0; i < n; i++) positive[i] = y[i] > 0.0;
    for (int i = 0; i < n; i++) start[i] = positive[i] & positive[i + 1] & positive[i + 2];
    unsigned char *masked = start + n + 8;
    for (int i = 0; i < n; i++) {
        const unsigned char *s = start + i;
        masked[i] = s[-4] | s[-3] | s[-2] | s[-1] | s[0] | s[1] | s[2];
    }
    int count = 0;
    for (int i = 0; i < n; i++) {
        scratch[count] = y[i];
        count += !(masked[i] | positive[i]);
    }
    if (count < NOISE_MIN_CHANNELS) return noise_simple(y, n, scratch);
    double median = median_in_place(scratch, count);
    for (int i = 0; i < count; i++) scratch[i] = fabs(scratch[i] - median);
    double mad_sigma = median_in_place(scratch, count) * MAD_TO_SIGMA;
    if (mad_sigma <= 0.0) return noise_simple(y, n, scratch);
    double clip = NOISE_CLIP * mad_sigma, sum = 0.0;
    count = 0;
    for (int i = 0; i < n; i++) {
        scratch[count] = y[i];
        count += !masked[i] & (fabs(y[i]) <= clip);
    }
    if (count < NOISE_MIN_CHANNELS) return noise_simple(y, n, scratch);
    int whole = count / VW * VW;
    vd sums = vset(0.0);
    for (int i = 0; i < whole; i += VW) sums += vload(scratch + i) * vload(scratch + i);
    sum = vsum(sums);
    for (int i = whole; i < count; i++) sum += scratch[i] * scratch[i];
    return sqrt(sum / count);
}
#endif
