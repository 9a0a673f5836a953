/// Steps over rows: the problem, its tensors and the handle to its kernel.
#pragma once

#include "kernelwright/runtime/row_op/kernel.h"
