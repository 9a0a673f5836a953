/// The rules that a GEMM's arguments obey, and the tensor maps that follow from them.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/gemm/launch.h"
#include "kernelwright/runtime/launch/matrix.h"

namespace kernelwright::detail {

/// The operands with the contiguous strides filled in.
struct GemmMatrices {
  Matrix a, b, c, d;
  std::int64_t scale_a_stride = 0, scale_b_stride = 0;
};
GemmMatrices matrices_of(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors) noexcept;

/// Every rule that is broken, led by "/tensors".
std::vector<Violation> broken_rules(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                                    const GemmMatrices& matrices);
/// Whether one is. As cheap as can be.
bool surely_fine(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                 const GemmMatrices& matrices) noexcept;

/// What a launch of gemm_sm90 passes: contract/gemm_params.h says what each map is.
struct GemmTensorMaps {
  TensorMapRequest a, b, d, d_tail, scales;
  bool has_whole = false, has_tail = false;  // d and d_tail
  bool has_scales = false;
};
GemmTensorMaps tensor_maps_of(const GemmSpec& spec, const GemmTensors& tensors, const GemmMatrices& matrices) noexcept;

/// The same of gemm_sm100: contract/gemm_sm100.h.
struct BlackwellGemmTensorMaps {
  TensorMapRequest a, b, d, scales_a, scales_b;
  bool has_scales = false;
};
BlackwellGemmTensorMaps blackwell_tensor_maps_of(const GemmSpec& spec, const GemmTensors& tensors,
                                                 const GemmMatrices& matrices) noexcept;

}  // namespace kernelwright::detail
