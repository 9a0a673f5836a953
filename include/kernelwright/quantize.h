/// Quantising to block-scaled formats: the problem, its tensors and the handle to its kernel.
#pragma once

#include "kernelwright/runtime/quantize/kernel.h"
