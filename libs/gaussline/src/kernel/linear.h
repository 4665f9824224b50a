/* Cholesky factors of symmetric matrices inside their envelope. */
#ifndef LINEAR_H
#define LINEAR_H

#include <math.h>
#include <stddef.h>

#include "simd.h"

/* Rows from to n of an in-place Cholesky of the lower triangle inside its envelope (row i starts at column first[i]),
 * those before from being factored; 0 when positive definite. ld is the row length. */
SHORT_LOOPS static int cholesky(double *a, int from, int n, int ld, const int *first)
{
    for (int i = from; i < n; i++) {
        double *row = a + (size_t)i * ld;
        for (int j = first[i]; j <= i; j++) {
            const double *other = a + (size_t)j * ld;
            int k = first[i] > first[j] ? first[i] : first[j];
            double s = row[j];
            for (; k < j; k++) s -= row[k] * other[k];
            if (j < i) {
                row[j] = s * other[j];
            } else {
                if (!(s > 1e-13)) return -1;
                row[i] = 1.0 / sqrt(s); /* the diagonal holds reciprocals */
            }
        }
    }
    return 0;
}

SHORT_LOOPS static void cholesky_solve(const double *l, int n, int ld, const int *first, double *x)
{
    for (int i = 0; i < n; i++) {
        double s = x[i];
        for (int k = first[i]; k < i; k++) s -= l[(size_t)i * ld + k] * x[k];
        x[i] = s * l[(size_t)i * ld + i];
    }
    for (int i = n - 1; i >= 0; i--) {
        x[i] *= l[(size_t)i * ld + i];
        for (int k = first[i]; k < i; k++) x[k] -= l[(size_t)i * ld + k] * x[i];
    }
}
#endif
