/// f32 scales that kernels make of what they quantise to e4m3 or e5m2: row_op, and GEMMs with a quantised result.
#pragma once

#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

/// The scale of values whose largest magnitude is `largest`: over the format's largest number, and at least the
/// smallest normal f32. With `power_of_two`, the next power of two that is no smaller. Computed in f32, to the bit as
/// kernels do.
float made_scale(DType format, float largest, bool power_of_two);

/// The same of a largest magnitude that is known but for an error, whose end `direction` says: -1 the lower one, 1 the
/// upper one; 0: there is no error.
float made_scale_at(DType format, double largest, bool power_of_two, int direction);

}  // namespace kernelwright
