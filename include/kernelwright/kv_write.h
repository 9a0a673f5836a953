/// Writing keys and values to a cache: the problem, its tensors and the handle to its kernel.
#pragma once

#include "kernelwright/runtime/kv_write/kernel.h"
