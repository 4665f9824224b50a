/* Vectors of doubles in the compiler's own vector extension: one source for SSE2, NEON, AVX2 and AVX-512.
 *
 * The including file sets VW, the number of lanes. Lanes are summed in one fixed order, so a result depends on the
 * instruction set but never on the thread or on the batch.
 */
#ifndef SIMD_H
#define SIMD_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#if VW == 8 && defined(__x86_64__)
#include <immintrin.h>
#endif

typedef double vd __attribute__((vector_size(8 * VW)));
typedef double vdu __attribute__((vector_size(8 * VW), aligned(8), may_alias));
typedef int64_t vi __attribute__((vector_size(8 * VW)));
typedef signed char vb __attribute__((vector_size(VW))); /* one byte a lane */

#define INLINE static inline __attribute__((always_inline))

/* In a build with GAUSSLINE_CHECKS, such as the fuzz driver's, a broken invariant ends the process. */
#ifdef GAUSSLINE_CHECKS
#define INVARIANT(condition)                                                      \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition);   \
            abort();                                                              \
        }                                                                         \
    } while (0)
#else
#define INVARIANT(condition) ((void)0)
#endif

/* For loops over a few parameters, where gcc's vectorisation costs more than it saves. */
#if defined(__GNUC__) && !defined(__clang__)
#define SHORT_LOOPS __attribute__((optimize("no-tree-vectorize")))
#else
#define SHORT_LOOPS
#endif

INLINE vd vset(double x) { return x - (vd){0.0}; }

INLINE vd vload(const double *p) { return *(const vd *)__builtin_assume_aligned(p, 8 * VW); }
INLINE void vstore(double *p, vd v) { *(vd *)__builtin_assume_aligned(p, 8 * VW) = v; }
INLINE vd vloadu(const double *p) { return (vd)*(const vdu *)p; }

/* Whether any lane of a mask is set. */
INLINE int has_lane(vi mask)
{
    int64_t any = 0;
    for (int j = 0; j < VW; j++) any |= mask[j];
    return any != 0;
}

/* Appends the lanes of v whose mask is set to out, which has room for a whole vector, in their order. Returns how
 * many. */
INLINE int append_lanes(double *out, vd v, vi mask)
{
#if VW == 8 && defined(__x86_64__)
    __mmask8 lanes = _mm512_movepi64_mask((__m512i)mask);
    _mm512_storeu_pd(out, _mm512_maskz_compress_pd(lanes, (__m512d)v));
    return __builtin_popcount(lanes);
#else
    int count = 0;
    for (int j = 0; j < VW; j++) {
        out[count] = v[j];
        count -= (int)mask[j];
    }
    return count;
#endif
}

INLINE vd viota(void)
{
    vd v;
    for (int j = 0; j < VW; j++) v[j] = j;
    return v;
}

INLINE double vsum(vd v)
{
#if VW == 8
    typedef double half __attribute__((vector_size(32)));
    half a = {v[0], v[1], v[2], v[3]}, b = {v[4], v[5], v[6], v[7]};
    half s = a + b;
    return (s[0] + s[2]) + (s[1] + s[3]);
#elif VW == 4
    return (v[0] + v[2]) + (v[1] + v[3]);
#else
    return v[0] + v[1];
#endif
}

/* exp(x) for x <= 700, to about 1 ulp; below -700 it is exp(-700). Cody-Waite reduction and a Taylor polynomial of
 * degree 12 on |r| <= ln2/2, whose remainder is below 2e-16 relative. */
INLINE vd vexp(vd x)
{
    for (int j = 0; j < VW; j++) INVARIANT(x[j] <= 700.0);
    const vd low = vset(-700.0), magic = vset(6755399441055744.0);
    vi under = x < low;
    x = (vd)(((vi)low & under) | ((vi)x & ~under));
    vd shifted = x * vset(1.4426950408889634) + magic;
    vd k = shifted - magic;
    vd r = x - k * vset(6.93147180369123816490e-01);
    r = r - k * vset(1.90821492927058770002e-10);
    vd r2 = r * r;
    vd p = vset(1.0 / 479001600.0) * r + vset(1.0 / 39916800.0);
    vd q = vset(1.0 / 3628800.0) * r + vset(1.0 / 362880.0);
    vd s = vset(1.0 / 40320.0) * r + vset(1.0 / 5040.0);
    vd t = vset(1.0 / 720.0) * r + vset(1.0 / 120.0);
    vd u = vset(1.0 / 24.0) * r + vset(1.0 / 6.0);
    p = p * r2 + q;
    p = p * r2 + s;
    p = p * r2 + t;
    p = p * r2 + u;
    p = p * r + vset(0.5);
    p = p * r2 + r;
    p = p + vset(1.0);
    vi bits = ((vi)shifted - (vi)magic + 1023) << 52;
    return p * (vd)bits;
}

/* The scalar version: lane zero of the same arithmetic. */
INLINE double sexp(double x) { return vexp(vset(x))[0]; }
#endif
