/// Outputs of a GEMM beside d, compared with d itself, which is compared with the reference.
#pragma once

#include <string>

#include "kernelwright/verify/gemm/case.h"

namespace kernelwright {

/// What is wrong with amax or squares; "" if nothing is. They are made of values before they are rounded to d. So amax
/// rounds to the largest magnitude that d has, and squares differ from those of d by what rounding explains.
std::string judge_statistics(const GemmCase& call, const GemmOutput& output);

}  // namespace kernelwright
