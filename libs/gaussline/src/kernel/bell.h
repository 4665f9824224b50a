/* The bell (unit Gaussian) of one component over its window, and the sums over channels that a fit needs. */
#ifndef BELL_H
#define BELL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "simd.h"
#include "workspace.h"

/* A component is evaluated down to 2^-13 (1.2e-4) of the noise, so its window widens with its signal-to-noise. */
#define WINDOW_FLOOR_OCTAVES 13.0
/* Blocks after which the recurrence starts again with an exponential; keeps its error below 1e-12. */
#define RESTART_BLOCKS 32

/* Half-width of the window in widths: where the bell of a component of this height has fallen to the floor. The height
 * is rounded up to a power of two, which avoids a logarithm. */
INLINE double window_reach(double height)
{
    double h = height > 1.0 ? height : 1.0;
    int64_t bits;
    memcpy(&bits, &h, sizeof bits);
    double octaves = (double)((bits >> 52) - 1022);
    return sqrt(2.0 * 0.69314718055994531 * (octaves + WINDOW_FLOOR_OCTAVES));
}

/* The channels of a component within [lo, hi). */
static Window window_of(Comp c, int lo, int hi)
{
    double half = c.s * window_reach(c.a);
    Window win;
    win.lo = (int)clamp(floor(c.mu - half), lo, hi) / VW * VW;
    win.hi = ((int)clamp(ceil(c.mu + half) + 1.0, lo, hi) + VW - 1) / VW * VW;
    if (win.hi > hi) win.hi = hi;
    if (win.hi < win.lo) win.hi = win.lo;
    return win;
}

/* target += factor * bell over the window; bell[] keeps the bell. Two multiplications for each vector, no exponential:
 * g(z + d) = g(z) q(z), q(z + d) = q(z) r with d the block in widths, q(z) = exp(-d z - d^2/2), r = exp(-d^2). */
INLINE void bell_add(Comp c, double factor, Window win, double *bell, double *target)
{
    INVARIANT(c.s >= WIDTH_MIN && c.a <= AMPLITUDE_MAX);
    double inv = 1.0 / c.s, d = VW * inv;
    vd r = vexp(vset(-d * d)), offset = viota() * vset(inv), a = vset(factor);
    for (int start = win.lo; start < win.hi; start += RESTART_BLOCKS * VW) {
        int stop = start + RESTART_BLOCKS * VW < win.hi ? start + RESTART_BLOCKS * VW : win.hi;
        vd z = vset((start - c.mu) * inv) + offset;
        vd g = vexp(vset(-0.5) * z * z), q = vexp(vset(-d) * z - vset(0.5 * d * d));
        for (int i = start; i < stop; i += VW) {
            vstore(bell + i, g);
            vstore(target + i, vload(target + i) + a * g);
            g *= q;
            q *= r;
        }
    }
}

INLINE double weighted_square(const double *w, const double *r, int lo, int hi)
{
    vd sum = vset(0.0);
    for (int i = lo; i < hi; i += VW) {
        vd v = vload(r + i);
        sum += vload(w + i) * v * v;
    }
    return vsum(sum);
}

/* All ten sums of one component in one pass. */
INLINE Moments moments_of(Comp c, Window win, const double *w, const double *bell, const double *r)
{
    double inv = 1.0 / c.s;
    vd z = vset((win.lo - c.mu) * inv) + viota() * vset(inv), dz = vset(VW * inv), zero = vset(0.0);
    vd a0 = zero, a1 = zero, a2 = zero, a3 = zero, a4 = zero, c0 = zero, c1 = zero, c2 = zero, c3 = zero, c4 = zero;
    for (int i = win.lo; i < win.hi; i += VW) {
        vd g = vload(bell + i), h = vload(w + i) * g, e = h * vload(r + i), z2 = z * z;
        h *= g;
        vd hz = h * z, ez = e * z, hz2 = h * z2, ez2 = e * z2;
        a0 += h;
        a1 += hz;
        a2 += hz2;
        a3 += hz * z2;
        a4 += hz2 * z2;
        c0 += e;
        c1 += ez;
        c2 += ez2;
        c3 += ez * z2;
        c4 += ez2 * z2;
        z += dz;
    }
    return (Moments){{vsum(a0), vsum(a1), vsum(a2), vsum(a3), vsum(a4)},
                     {vsum(c0), vsum(c1), vsum(c2), vsum(c3), vsum(c4)}};
}

/* 3 x 3 block of the normal matrix between narrow and wide, rows of narrow: the product of two bells times powers of
 * the narrow one's z needs five sums, since the wide one's z is affine in it. */
INLINE void cross_block(Comp narrow, Comp wide, Window win, const double *w, const double *gn, const double *gw,
                        double block[3][3])
{
    double inv = 1.0 / narrow.s;
    vd z = vset((win.lo - narrow.mu) * inv) + viota() * vset(inv), dz = vset(VW * inv), zero = vset(0.0);
    vd s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero;
    for (int i = win.lo; i < win.hi; i += VW) {
        vd h = vload(w + i) * vload(gn + i) * vload(gw + i), z2 = z * z, hz = h * z, hz2 = h * z2;
        s0 += h;
        s1 += hz;
        s2 += hz2;
        s3 += hz * z2;
        s4 += hz2 * z2;
        z += dz;
    }
    double m0 = vsum(s0), m1 = vsum(s1), m2 = vsum(s2), m3 = vsum(s3), m4 = vsum(s4);
    double p = narrow.s / wide.s, q = (narrow.mu - wide.mu) / wide.s;
    double jn = narrow.a / narrow.s, jw = wide.a / wide.s;
    double m[5] = {m0, m1, m2, m3, m4};
    double left[3] = {1.0, jn, jn};
    for (int i = 0; i < 3; i++) {
        block[i][0] = left[i] * m[i];
        block[i][1] = left[i] * jw * (p * m[i + 1] + q * m[i]);
        block[i][2] = left[i] * jw * (p * p * (i < 3 ? m[i + 2] : 0.0) + 2.0 * p * q * m[i + 1] + q * q * m[i]);
    }
}
#endif
