/// A whole layer of experts as one call: the problem, its tensors and the handle to its kernels.
#pragma once

#include "kernelwright/runtime/moe/kernel.h"
