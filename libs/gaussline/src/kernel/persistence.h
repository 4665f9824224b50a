/* Zero-dimensional persistence of the maxima of a spectrum, in one pass over the alternating extrema with a stack of
 * maxima of falling height. A maximum dies at the higher of its two saddles when a higher maximum follows. It gives the
 * same peaks as the union-find sweep (Edelsbrunner & Harer 2010, chapter VII), without the sort. */
#ifndef PERSISTENCE_H
#define PERSISTENCE_H

#include <stdlib.h>


typedef struct {
    double birth, death, persistence;
    int index;
    int saddle; /* -1 for the global maximum, which never dies */
} Peak;

static int peak_compare(const void *a, const void *b)
{
    const Peak *p = a, *q = b;
    if (p->persistence != q->persistence) return p->persistence > q->persistence ? -1 : 1;
    return (p->index > q->index) - (p->index < q->index);
}

/* Persistence of a maximum of y[0..n), the first of its equal neighbours, that is not the global one: as in
 * persistence_peaks. For a few maxima it costs less. */
static double persistence_at(const double *y, int n, int index)
{
    double top = y[index], left = top, right = top;
    int i = index - 1, j = index + 1;
    for (; i >= 0 && y[i] < top; i--) left = y[i] < left ? y[i] : left;
    for (; j < n && !(y[j] > top); j++) right = y[j] < right ? y[j] : right;
    return top - (i < 0 ? right : j == n || left > right ? left : right);
}

/* A maximum on the stack and the lowest channel between it and the one below it on the stack. */
typedef struct {
    int index, saddle;
} Ridge;

/* Peaks of y[0..n) above min_persistence, most persistent first, at most capacity of them (if there are more, only the
 * first capacity that are found). stack holds n / 2 + 2 ridges. Returns the count. */
static int persistence_peaks(const double *y, int n, double min_persistence, Ridge *stack, Peak *out, int capacity)
{
    int depth = 0, count = 0, i = 0, low = 0;
#define EMIT(ridge, died_at)                                                                     \
    do {                                                                                         \
        double life = y[(ridge).index] - y[died_at];                                             \
        if (life > min_persistence && count < capacity)                                          \
            out[count++] = (Peak){y[(ridge).index], y[died_at], life, (ridge).index, died_at};   \
    } while (0)
    while (i < n) {
        while (i + 1 < n && !(y[i + 1] < y[i])) i++;
        int top = i;
        while (top > low && y[top - 1] == y[top]) top--;
        while (depth && y[stack[depth - 1].index] < y[top]) {
            Ridge dead = stack[--depth];
            if (depth == 0 || y[dead.saddle] < y[low]) {
                EMIT(dead, low);
                low = depth == 0 ? low : dead.saddle;
            } else {
                EMIT(dead, dead.saddle);
            }
        }
        stack[depth++] = (Ridge){top, low};
        while (i + 1 < n && !(y[i + 1] > y[i])) i++;
        low = i;
        if (i + 1 >= n) break;
    }
    while (depth > 1) {
        depth--;
        EMIT(stack[depth], stack[depth].saddle);
    }
#undef EMIT
    double highest = y[stack[0].index];
    if (highest >= min_persistence && count < capacity)
        out[count++] = (Peak){highest, 0.0, highest, stack[0].index, -1};
    qsort(out, (size_t)count, sizeof *out, peak_compare);
    return count;
}
#endif
