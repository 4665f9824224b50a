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

/* Passes that narrow the range of a median, and the number of values below which there are none. */
#define MEDIAN_PASSES 4
#define MEDIAN_FEW 24

/* Numbers of values of a[0..n_pad) below two pivots. */
INLINE void count_below(const double *a, int n_pad, double low, double high, int *below_low, int *below_high)
{
    vi l = {0}, h = {0};
    vd lows = vset(low), highs = vset(high);
    for (int i = 0; i < n_pad; i += VW) {
        vd v = vload(a + i);
        l += v < lows;
        h += v < highs;
    }
    int64_t sum_l = 0, sum_h = 0;
    for (int j = 0; j < VW; j++) {
        sum_l += l[j];
        sum_h += h[j];
    }
    *below_low = (int)-sum_l;
    *below_high = (int)-sum_h;
}

/* Median of a[0..n). Passes over all values narrow the range of the middle ones by the numbers below two pivots, and
 * what is left in the range is selected from, in room. Both have room for n padded to whole vectors, and a vector. */
static double median_of(double *a, int n, double *room)
{
    int first = (n - 1) / 2, last = n / 2, n_pad = (n + VW - 1) / VW * VW; /* ranks of the middle ones */
    int below = 0, under = n; /* numbers below the range and below its upper end */
    vd lowest = vset(INFINITY), highest = vset(-INFINITY);
    for (int i = n; i < n_pad; i++) a[i] = a[n - 1];
    for (int i = 0; i < n_pad; i += VW) {
        vd v = vload(a + i);
        lowest = (vd)(((vi)v & (v < lowest)) | ((vi)lowest & ~(v < lowest)));
        highest = (vd)(((vi)v & (v > highest)) | ((vi)highest & ~(v > highest)));
    }
    double low = lowest[0], high = highest[0];
    for (int j = 1; j < VW; j++) {
        low = lowest[j] < low ? lowest[j] : low;
        high = highest[j] > high ? highest[j] : high;
    }
    for (int i = n; i < n_pad; i++) a[i] = INFINITY;
    for (int pass = 0; pass < MEDIAN_PASSES && under - below > MEDIAN_FEW; pass++) {
        int margin = (under - below) / 8 + 1, below_pivot, below_other;
        double unit = (high - low) / (under - below);
        double pivot = low + (first - below - margin) * unit, other = low + (last - below + margin) * unit;
        count_below(a, n_pad, pivot, other, &below_pivot, &below_other);
        if (below_pivot <= first && pivot > low) {
            low = pivot;
            below = below_pivot;
        }
        if (below_other > last && other < high) {
            high = other;
            under = below_other;
        }
        if (below_pivot > last && pivot > low && pivot < high) {
            high = pivot;
            under = below_pivot;
        }
        if (below_other <= first && other > low && other < high) {
            low = other;
            below = below_other;
        }
    }
    vd lows = vset(low), highs = vset(under < n ? high : INFINITY);
    int count = 0;
    for (int i = 0; i < n_pad; i += VW) {
        vd v = vload(a + i);
        count += append_lanes(room + count, v, (v >= lows) & (v < highs));
    }
    double upper = select_kth(room, count, last - below);
    if (first == last) return upper;
    double lower = room[0];
    for (int i = 1; i < last - below; i++) lower = room[i] > lower ? room[i] : lower;
    return 0.5 * (lower + upper);
}

static double noise_simple(const double *y, int n, double *scratch, double *room)
{
    memcpy(scratch, y, (size_t)n * sizeof *y);
    double median = median_of(scratch, n, room);
    for (int i = 0; i < n; i++) scratch[i] = fabs(y[i] - median);
    return median_of(scratch, n, room) / MAD_OF_SIGMA;
}

/* Copies the channels that are not masked and from low to high to out, in order; returns how many. */
static int append_quiet(const double *y, int n, const unsigned char *masked, double low, double high, double *out)
{
    int count = 0, whole = n / VW * VW;
    vd lows = vset(low), highs = vset(high);
    for (int i = 0; i < whole; i += VW) {
        vb bytes;
        memcpy(&bytes, masked + i, sizeof bytes);
        vd v = vload(y + i);
        vi kept = (__builtin_convertvector(bytes, vi) == (vi){0}) & (v >= lows) & (v <= highs);
        count += append_lanes(out + count, v, kept);
    }
    for (int i = whole; i < n; i++) {
        double v = y[i];
        out[count] = v;
        count += !masked[i] & (v >= low) & (v <= high);
    }
    return count;
}

/* y[0..n) are the channels that are not blank; marks holds 3 * (n + 8) bytes scratch and room n padded to whole
 * vectors, and a vector.
 * Returns zero if the noise cannot be estimated. */
static double noise_estimate(const double *y, int n, unsigned char *marks, double *scratch, double *room)
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
    int count = append_quiet(y, n, masked, -INFINITY, 0.0, scratch);
    if (count < NOISE_MIN_CHANNELS) return noise_simple(y, n, scratch, room);
    double median = median_of(scratch, count, room);
    for (int i = 0; i < count; i++) scratch[i] = fabs(scratch[i] - median);
    double mad_sigma = median_of(scratch, count, room) * MAD_TO_SIGMA;
    if (mad_sigma <= 0.0) return noise_simple(y, n, scratch, room);
    double clip = NOISE_CLIP * mad_sigma, sum = 0.0;
    count = append_quiet(y, n, masked, -clip, clip, scratch);
    if (count < NOISE_MIN_CHANNELS) return noise_simple(y, n, scratch, room);
    int whole = count / VW * VW;
    vd sums = vset(0.0);
    for (int i = 0; i < whole; i += VW) sums += vload(scratch + i) * vload(scratch + i);
    sum = vsum(sums);
    for (int i = whole; i < count; i++) sum += scratch[i] * scratch[i];
    return sqrt(sum / count);
}
#endif
