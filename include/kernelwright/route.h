/// Choosing the experts of tokens: the problem, its tensors and the handle to its kernels.
#pragma once

#include "kernelwright/runtime/route/kernel.h"
