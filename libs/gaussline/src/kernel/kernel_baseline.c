/* The kernel in the instructions every machine of the target architecture has (SSE2 on x86-64, NEON on arm64). */
#define VW 2
#define KERNEL_NAME gl_kernel_baseline
#include "kernel.inc.h"
