/// GEMMs: their problem, their tensors and the handle to their kernels.
#pragma once

#include "kernelwright/runtime/gemm/kernel.h"
