/* The kernel for AVX-512; empty on other architectures. */
#if defined(__x86_64__)
/* The system's headers come before the pragma, so that their inline functions are compiled for the baseline. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512vl,avx2,fma")
#endif
#define VW 8
#define KERNEL_NAME gl_kernel_avx512
#include "kernel.inc.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gl_kernel_avx512_is_not_built_here;
#endif
