/* The a-trous B3-spline scale space (Starck & Murtagh 2006): its widths, its norms and one pass of it. */
#ifndef SCALES_H
#define SCALES_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simd.h"
#include "workspace.h"

/* The widest scale is at most this fraction of the spectrum. */
#define WIDEST_SCALE 0.125

static int scale_count(int n)
{
    int count = 1;
    for (double four = 16.0; sqrt((four - 1.0) / 3.0) <= WIDEST_SCALE * n; four *= 4.0) count++;
    return count;
}

/* Width of scale j = 0, 1, ... in channels: each B3 pass with step 2^j adds a variance of 4^j. */
INLINE double scale_width(int j) { return sqrt((pow(4.0, j + 1) - 1.0) / 3.0); }

INLINE double *scale_row(const gl_workspace *ws, int j)
{
    return ws->scale_rows + (size_t)j * ws->scale_stride + ws->scale_pad;
}

/* Norm of each smoothing kernel (of its response to one channel) and its width. The response is computed in the memory
 * of the scale space, which has room for it (a smoothing kernel is far shorter than the spectrum) and is zero after. */
static void set_scale_norms(gl_workspace *ws)
{
    size_t items = (size_t)ws->scale_stride * (size_t)(ws->scales_max + 1);
    const double kernel[5] = {0.0625, 0.25, 0.375, 0.25, 0.0625};
    for (int j = 0; j < ws->scales_max; j++) {
        ws->scale_sigma[j] = scale_width(j);
        /* response of the chain to one channel, computed on a line that is long enough */
        int reach = 4 << j, length = 2 * reach + 1;
        double *line = ws->scale_rows, *other = line + length;
        INVARIANT(2 * (size_t)length <= items);
        memset(line, 0, (size_t)length * sizeof *line);
        line[reach] = 1.0;
        for (int level = 0; level <= j; level++) {
            for (int i = 0; i < length; i++) {
                double sum = 0.0;
                for (int t = -2; t <= 2; t++) {
                    int at = i + t * (1 << level);
                    if (at >= 0 && at < length) sum += kernel[t + 2] * line[at];
                }
                other[i] = sum;
            }
            memcpy(line, other, (size_t)length * sizeof *line);
        }
        double norm = 0.0;
        for (int i = 0; i < length; i++) norm += line[i] * line[i];
        for (int lag = 0; lag < LAGS; lag++) {
            ws->scale_overlap[j][lag] = 0.0;
            for (int i = 0; i + lag < length; i++) ws->scale_overlap[j][lag] += line[i] * line[i + lag];
        }
        ws->scale_inv_norm[j] = 1.0 / sqrt(norm);
    }
    memset(ws->scale_rows, 0, items * sizeof(double));
}

/* The B3 kernel with a step, at one vector. */
INLINE vd smooth_at(const double *from, int step)
{
    const vd c0 = vset(0.375), c1 = vset(0.25), c2 = vset(0.0625);
    vd near = vloadu(from - step) + vloadu(from + step);
    vd far = vloadu(from - 2 * step) + vloadu(from + 2 * step);
    return c0 * vload(from) + c1 * near + c2 * far;
}

/* One pass of the B3 kernel with step 2^j: row j + 1 from row j. */
INLINE void smooth_pass(gl_workspace *ws, int j)
{
    const double *from = scale_row(ws, j);
    double *out = scale_row(ws, j + 1);
    for (int i = 0; i < ws->n_pad; i += VW) vstore(out + i, smooth_at(from + i, 1 << j));
}
#endif
