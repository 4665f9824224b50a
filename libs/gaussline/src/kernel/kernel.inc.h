/* The whole kernel, compiled once for each instruction set; the including file sets VW and KERNEL_NAME. */
#include "gaussline.h"
#include "spectrum.h"

const gl_kernel KERNEL_NAME = {workspace_new, workspace_free, expected_cost, decompose_one};
