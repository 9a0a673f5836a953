/// The rules that the arguments of a GEMM's launch obey.
#pragma once

#include <cstdint>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/gemm/launch.h"
#include "kernelwright/runtime/gemm/matrices.h"

namespace kernelwright::detail {

/// Rows of operands that are read through tensor maps begin at multiples of so many bytes.
inline constexpr int kRowAlignment = 16;

/// Every rule that is broken, led by "/tensors".
std::vector<Violation> broken_rules(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                                    const GemmMatrices& matrices);
/// Whether one is. As cheap as can be.
bool surely_fine(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                 const GemmMatrices& matrices) noexcept;

}  // namespace kernelwright::detail
