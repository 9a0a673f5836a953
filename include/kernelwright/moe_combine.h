/// Adding up the rows that experts made of each token: the problem, its tensors and the handle to its kernel.
#pragma once

#include "kernelwright/runtime/moe_combine/kernel.h"
