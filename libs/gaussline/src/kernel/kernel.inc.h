/* The whole kernel, compiled once for each instruction set; the including file sets VW and KERNEL_NAME. */
#include "gaussline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "simd.h"
#include "noise.h"
#include "persistence.h"
#include "fit.h"
#include "search.h"
#include "model.h"
#include "best.h"
#include "compatible.h"
#include "spectrum.h"

const gl_kernel KERNEL_NAME = {workspace_new, workspace_free, expected_cost, decompose_one};
