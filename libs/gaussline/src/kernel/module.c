/* The Python binding. It reads arrays by the buffer protocol and returns bytearrays, so the extension does not depend
 * on the version of numpy. It uses the limited API, so it works with every Python from the lowest supported version
 * on. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "gaussline.h"

typedef struct {
    const char *name;
    size_t offset, size;
} Field;

static const Field COMPONENT_FIELDS[] = {
    {"amplitude", offsetof(gl_component, amplitude), 8},
    {"mean", offsetof(gl_component, mean), 8},
    {"stddev", offsetof(gl_component, stddev), 8},
    {"amplitude_err", offsetof(gl_component, amplitude_err), 8},
    {"mean_err", offsetof(gl_component, mean_err), 8},
    {"stddev_err", offsetof(gl_component, stddev_err), 8},
    {"flux", offsetof(gl_component, flux), 8},
    {"flux_err", offsetof(gl_component, flux_err), 8},
    {"component_flags", offsetof(gl_component, flags), 4},
};

static const Field SUMMARY_FIELDS[] = {
    {"rms", offsetof(gl_summary, rms), 8},
    {"chi2_reduced", offsetof(gl_summary, chi2_reduced), 8},
    {"aicc", offsetof(gl_summary, aicc), 8},
    {"correlation", offsetof(gl_summary, correlation), 8},
    {"baseline_0", offsetof(gl_summary, baseline[0]), 8},
    {"baseline_1", offsetof(gl_summary, baseline[1]), 8},
    {"baseline_2", offsetof(gl_summary, baseline[2]), 8},
    {"baseline_3", offsetof(gl_summary, baseline[3]), 8},
    {"effective_channels", offsetof(gl_summary, effective_channels), 8},
    {"seconds", offsetof(gl_summary, seconds), 8},
    {"work", offsetof(gl_summary, work), 8},
    {"flags", offsetof(gl_summary, flags), 4},
    {"n_components", offsetof(gl_summary, n_components), 4},
};

#define N_COMPONENT_FIELDS (sizeof COMPONENT_FIELDS / sizeof *COMPONENT_FIELDS)
#define N_SUMMARY_FIELDS (sizeof SUMMARY_FIELDS / sizeof *SUMMARY_FIELDS)

/* Appends the fields of a record to their columns. */
static void append(const Field *fields, size_t n_fields, const char *record, char **columns)
{
    for (size_t f = 0; f < n_fields; f++) {
        if (fields[f].size == 8) memcpy(columns[f], record + fields[f].offset, 8);
        else memcpy(columns[f], record + fields[f].offset, 4);
        columns[f] += fields[f].size;
    }
}

/* Adds an empty column. Returns its memory, or NULL with an exception. */
static char *add_column(PyObject *columns, const char *name, size_t bytes)
{
    PyObject *array = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (!array) return NULL;
    char *data = PyByteArray_AsString(array);
    int failed = PyDict_SetItemString(columns, name, array);
    Py_DECREF(array);
    return failed ? NULL : data;
}

static PyObject *to_columns(const gl_result *result, size_t n)
{
    char *summaries[N_SUMMARY_FIELDS], *components[N_COMPONENT_FIELDS], *threads = NULL;
    size_t total = 0;
    for (int i = 0; i < result->n_arenas; i++) total += result->arenas[i].used;
    PyObject *columns = PyDict_New();
    int failed = !columns;
    for (size_t f = 0; f < N_SUMMARY_FIELDS && !failed; f++)
        failed = !(summaries[f] = add_column(columns, SUMMARY_FIELDS[f].name, n * SUMMARY_FIELDS[f].size));
    for (size_t f = 0; f < N_COMPONENT_FIELDS && !failed; f++)
        failed = !(components[f] = add_column(columns, COMPONENT_FIELDS[f].name, total * COMPONENT_FIELDS[f].size));
    if (!failed) failed = !(threads = add_column(columns, "thread_seconds", (size_t)result->n_arenas * sizeof(double)));
    if (failed) {
        Py_XDECREF(columns);
        return NULL;
    }
    for (int i = 0; i < result->n_arenas; i++) memcpy(threads + 8 * i, &result->arenas[i].seconds, 8);
    for (size_t row = 0; row < n; row++) {
        const gl_summary *s = result->summaries + row;
        const gl_component *c = result->arenas[s->arena].items + s->first;
        append(SUMMARY_FIELDS, N_SUMMARY_FIELDS, (const char *)s, summaries);
        for (int32_t i = 0; i < s->n_components; i++)
            append(COMPONENT_FIELDS, N_COMPONENT_FIELDS, (const char *)(c + i), components);
    }
    return columns;
}

/* Whether the offsets rise and lie within the number of starts. */
static int starts_fit(const gl_batch *batch, Py_ssize_t n, Py_ssize_t starts, Py_ssize_t offsets)
{
    if (offsets != n + 1 || batch->start_offsets[0] < 0 || batch->start_offsets[n] > starts) return 0;
    for (Py_ssize_t i = 0; i < n; i++)
        if (batch->start_offsets[i] > batch->start_offsets[i + 1]) return 0;
    return 1;
}

/* Handles signals in the thread of the call. Returns whether a handler raised an exception, such as
 * KeyboardInterrupt. Python runs handlers only in the main thread. */
static int handle_signals(void *state)
{
    PyThreadState **saved = state;
    PyEval_RestoreThread(*saved);
    int raised = PyErr_CheckSignals() != 0;
    *saved = PyEval_SaveThread();
    return raised;
}

static PyObject *py_decompose(PyObject *self, PyObject *args)
{
    Py_buffer data, noise, lags, starts, offsets;
    PyObject *noise_object, *lags_object, *starts_object, *offsets_object;
    Py_ssize_t n, channels, row_stride, channel_stride;
    gl_batch batch;
    gl_result result;
    (void)self;
    memset(&batch, 0, sizeof batch);
    memset(&noise, 0, sizeof noise);
    memset(&lags, 0, sizeof lags);
    memset(&starts, 0, sizeof starts);
    memset(&offsets, 0, sizeof offsets);
    if (!PyArg_ParseTuple(args, "y*nnpOpnniOOO(dddddddiiiii)ii", &data, &n, &channels, &batch.is_float32, &noise_object,
                          &batch.noise_is_shape, &row_stride, &channel_stride, &batch.correlation_mode, &lags_object,
                          &starts_object, &offsets_object,
                          &batch.params.beta, &batch.params.snr_min, &batch.params.mf_snr_min, &batch.params.f_sep,
                          &batch.params.neg_thresh, &batch.params.fwhm_min, &batch.params.time_budget_s,
                          &batch.params.max_refine_iter, &batch.params.max_components, &batch.params.preset,
                          &batch.params.baseline_order, &batch.params.second_start, &batch.threads, &batch.isa))
        return NULL;
    PyObject *columns = NULL;
    Py_ssize_t item = batch.is_float32 ? 4 : 8;
    if (n < 0 || channels < 1 || channels > (1 << 26) || data.len / item / channels < n) {
        PyErr_SetString(PyExc_ValueError, "the spectra buffer is smaller than n rows of channels items");
        goto done;
    }
    if (batch.isa < GL_ISA_AUTO || batch.isa > gl_best_isa() || batch.params.max_components < 1 ||
        batch.params.baseline_order < -1 || batch.params.baseline_order >= GL_BASELINE_TERMS) {
        PyErr_SetString(PyExc_ValueError,
                        "this machine has no such instruction set, or max_components or baseline_order is out of range");
        goto done;
    }
    if (noise_object != Py_None) {
        if (PyObject_GetBuffer(noise_object, &noise, PyBUF_SIMPLE) != 0) goto done;
        Py_ssize_t needed = n > 0 ? (n - 1) * row_stride + (channels - 1) * channel_stride + 1 : 0;
        if (row_stride < 0 || channel_stride < 0 || noise.len / 8 < needed) {
            PyErr_SetString(PyExc_ValueError, "the noise buffer is smaller than its strides require");
            goto done;
        }
        batch.noise = noise.buf;
    }
    if (lags_object != Py_None) {
        if (PyObject_GetBuffer(lags_object, &lags, PyBUF_SIMPLE) != 0) goto done;
        batch.correlation = lags.buf;
        batch.n_lags = (int32_t)(lags.len / 8);
    }
    if (batch.correlation_mode == GL_CORRELATION_GIVEN && batch.n_lags < 1) {
        PyErr_SetString(PyExc_ValueError, "a given correlation has at least the lag zero");
        goto done;
    }
    if (starts_object != Py_None) {
        if (PyObject_GetBuffer(starts_object, &starts, PyBUF_SIMPLE) != 0) goto done;
        if (PyObject_GetBuffer(offsets_object, &offsets, PyBUF_SIMPLE) != 0) goto done;
        batch.starts = starts.buf;
        batch.start_offsets = offsets.buf;
        if (!starts_fit(&batch, n, starts.len / 24, offsets.len / 8)) {
            PyErr_SetString(PyExc_ValueError, "the offsets of the starts do not rise from zero to their number");
            goto done;
        }
    }
    batch.data = data.buf;
    batch.n = (size_t)n;
    batch.channels = (int32_t)channels;
    batch.noise_row_stride = row_stride;
    batch.noise_channel_stride = channel_stride;
    PyThreadState *saved = PyEval_SaveThread();
    gl_batch_watch watch = {handle_signals, &saved, 0.0, 0};
    batch.watch = &watch;
    int outcome = gl_decompose_batch(&batch, &result);
    PyEval_RestoreThread(saved);
    if (outcome != GL_OK) {
        if (outcome == GL_NO_MEMORY && !PyErr_Occurred()) PyErr_NoMemory();
        goto done;
    }
    columns = to_columns(&result, batch.n);
    gl_result_free(&result);
done:
    if (noise.obj) PyBuffer_Release(&noise);
    if (lags.obj) PyBuffer_Release(&lags);
    if (starts.obj) PyBuffer_Release(&starts);
    if (offsets.obj) PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    return columns;
}

static PyObject *py_best_isa(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong(gl_best_isa());
}

static PyMethodDef METHODS[] = {
    {"decompose", py_decompose, METH_VARARGS,
     "decompose(data, n, channels, is_float32, noise, noise_row_stride, noise_channel_stride, params, threads, isa)\n\n"
     "Columns of the batch by name, as bytearrays of native-endian items."},
    {"best_isa", py_best_isa, METH_NOARGS, "The widest instruction set of this machine that the kernel was built for."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef_Slot SLOTS[] = {{0, NULL}};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_kernel", "The batch kernel of prismline_gaussline.", 0, METHODS, SLOTS, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&MODULE); }
