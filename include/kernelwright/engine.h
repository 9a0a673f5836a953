/// The engine: problems in, kernels that are ready to launch out. All that a C++ host needs.
#pragma once

#include "kernelwright/runtime/engine/engine.h"
