/* Types that the batch driver, the per-instruction-set kernels and the Python binding share.
 *
 * Every length is in channels, every amplitude in the unit of the input until load_spectrum() divides by the noise.
 */
#ifndef GAUSSLINE_H
#define GAUSSLINE_H

#include <stddef.h>
#include <stdint.h>

enum { GL_PRESET_BEST = 0, GL_PRESET_COMPATIBLE = 1 };

/* What is assumed about the noise of neighbouring channels. */
enum { GL_CORRELATION_WHITE = 0, GL_CORRELATION_ESTIMATE = 1, GL_CORRELATION_GIVEN = 2 };

/* Bits of the flag column of a spectrum; the Python enumeration Flag repeats them. */
enum {
    GL_CONVERGED = 1,      /* every fit of the final model met the chi-square criterion */
    GL_AT_BOUND = 2,       /* a width or mean of the final model lies on its bound */
    GL_BLENDED = 4,        /* two components closer than f_sep times the narrower FWHM */
    GL_LIMIT_HIT = 8,      /* the component or the work limit ended the search */
    GL_TIME_LIMIT = 16,    /* the time budget ended the search */
    GL_BLANK = 32,         /* some channels were blank (not finite, or noise not positive) and had weight zero */
    GL_NO_DATA = 64,       /* too few channels that are not blank: nothing was fitted */
    GL_NO_NOISE = 128,     /* the noise could not be estimated: nothing was fitted */
    GL_NOT_FINITE = 256,   /* a number of the fit or of the result was not finite: no component is returned */
    GL_OFFSET = 512,       /* the zero of the spectrum is off: a constant is left beside the lines */
    GL_SLOPE = 1024,       /* a slope is left beside the lines */
    GL_RIPPLE = 2048,      /* a wave is left beside the lines */
    GL_NEGATIVE = 4096     /* a feature below zero, such as an absorption line */
};

/* Bits of the flag column of a component; the Python enumeration ComponentFlag repeats them. */
enum {
    GL_COMPONENT_AT_BOUND = 1,
    GL_COMPONENT_BLENDED = 2,
    GL_COMPONENT_NO_ERROR = 4,
    GL_COMPONENT_NARROW = 8,
    GL_COMPONENT_BELOW_THRESHOLD = 16 /* AICc pays for it, but snr_min, mf_snr_min or fwhm_min would not keep it */
};

/* Coefficients of the polynomial baseline: at most a cubic. */
#define GL_BASELINE_TERMS 4

typedef struct {
    double beta;            /* persistence threshold, noise units */
    double snr_min;         /* least amplitude, noise units */
    double mf_snr_min;      /* least matched-filter signal-to-noise */
    double f_sep;           /* blended-pair separation, FWHM of the narrower */
    double neg_thresh;      /* depth of a residual dip that triggers a split, noise units */
    double fwhm_min;        /* least FWHM, channels; negative: from the correlation of the noise */
    double time_budget_s;   /* limit of processor time for one spectrum, seconds */
    int32_t max_refine_iter;
    int32_t max_components;
    int32_t preset;
    int32_t baseline_order; /* of the polynomial that is fitted with the lines, 0 to 3; negative: none */
    int32_t second_start;   /* search for blends more thoroughly: components beside a line, a second start */
} gl_params;

typedef struct {
    double amplitude, mean, stddev;
    double amplitude_err, mean_err, stddev_err;
    double flux, flux_err;
    uint32_t flags;
} gl_component;

typedef struct {
    double rms, chi2_reduced, aicc;
    double correlation;        /* of the noise of neighbouring channels; zero for white */
    double baseline[GL_BASELINE_TERMS]; /* coefficients of the powers of the channel number; zero beyond the order */
    double effective_channels; /* number of independent channels for a signal wider than the correlation */
    double seconds;         /* wall-clock time of this spectrum */
    double work;            /* channel-by-component evaluations: the bounded measure of effort */
    uint32_t flags;
    int32_t n_components;
    int32_t arena;          /* which thread's store holds the components */
    size_t first;           /* index of the first one there */
} gl_summary;

/* Ends a batch early. The thread that called for the batch asks now and then whether to end it. */
typedef struct {
    int (*ask)(void *state);
    void *state;
    double asked_s;          /* wall-clock time of the last question */
    int ended;               /* set and read atomically */
} gl_batch_watch;

/* One batch: (n, channels) row-major, native-endian; noise strides are in elements and may be zero (broadcast). */
typedef struct {
    const void *data;
    int is_float32;
    size_t n;
    int32_t channels;
    const double *noise;    /* NULL: estimate it from the spectrum */
    int noise_is_shape;     /* noise has only the shape along the spectrum; its scale is estimated */
    ptrdiff_t noise_row_stride, noise_channel_stride;
    int correlation_mode;      /* GL_CORRELATION_* */
    const double *correlation; /* given: n_lags of them, the first one 1 */
    int32_t n_lags;
    const double *starts;         /* NULL, or amplitude, mean and width of the components that fits start from */
    const int64_t *start_offsets; /* n + 1: those of row i are start_offsets[i] to start_offsets[i + 1] */
    gl_params params;
    int threads;
    gl_batch_watch *watch;  /* NULL: nothing ends the batch */
    int isa;                /* GL_ISA_*; GL_ISA_AUTO takes the widest one this machine has */
} gl_batch;

/* The results of one thread. */
typedef struct {
    gl_component *items;
    size_t used, capacity;
    double seconds;         /* processor time of the thread */
} gl_arena;

typedef struct {
    gl_summary *summaries;  /* n of them */
    gl_arena *arenas;       /* one for each thread */
    int n_arenas;
} gl_result;

enum { GL_ISA_AUTO = 0, GL_ISA_BASELINE = 1, GL_ISA_AVX2 = 2, GL_ISA_AVX512 = 3 };

/* Workspace of one thread, allocated once for each batch. The layout is private to spectrum.h. */
typedef struct gl_workspace gl_workspace;

typedef struct {
    gl_workspace *(*workspace_new)(const gl_batch *, int is_caller);
    void (*workspace_free)(gl_workspace *);
    double (*expected_cost)(const gl_batch *, size_t row);
    /* Returns 0, or -1 when the arena cannot grow. */
    int (*decompose)(gl_workspace *, const gl_batch *, size_t row, gl_summary *, gl_arena *);
} gl_kernel;

extern const gl_kernel gl_kernel_baseline;
#if defined(__x86_64__)
extern const gl_kernel gl_kernel_avx2;
extern const gl_kernel gl_kernel_avx512;
#endif

int gl_best_isa(void);
enum { GL_OK = 0, GL_NO_MEMORY = -1, GL_ENDED = -2 };

/* Returns GL_OK, GL_NO_MEMORY, or GL_ENDED if the watch ended the batch; then the result is empty. Free the result with
 * gl_result_free(). */
int gl_decompose_batch(const gl_batch *, gl_result *);
void gl_result_free(gl_result *);
#endif
