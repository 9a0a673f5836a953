/// Attention: its problem, its tensors and the handle to its kernel.
#pragma once

#include "kernelwright/runtime/attention/kernel.h"
